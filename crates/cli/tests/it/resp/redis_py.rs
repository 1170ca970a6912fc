//! redis-py, the usual client of Python. Its program is `client.py` in this folder.

use std::fs;
use std::path::Path;

use sluicegate_testkit::{Error, need};

use super::{Server, folder, output, tool, write_secret};

/// Runs `client.py` with the port and these arguments.
fn run(server: &Server, args: &[&str]) -> Result<String, Error> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let packages = root.join("../../.tools/python");
    let mut python = tool("python3")?;
    python.env("PYTHONPATH", &packages);
    if !python.args(["-c", "import redis"]).output()?.status.success() {
        return Err(Error::Missing(
            "redis-py is not installed; `make deps` installs it".to_owned(),
        ));
    }
    let mut python = tool("python3")?;
    python.env("PYTHONPATH", &packages).arg(root.join("tests/it/resp/client.py"));
    Ok(output(python.arg(server.port()).args(args)))
}

#[test]
fn redis_py_asks_over_resp2_and_resp3() {
    for protocol in ["2", "3"] {
        let server = Server::start();
        assert_eq!(need!(run(&server, &[protocol])), "ok\n");
    }
}

#[test]
fn redis_py_logs_in() {
    let folder = folder();
    let file = folder.join("password");
    write_secret(&file, "hunter2");
    for protocol in ["2", "3"] {
        let server = Server::start_with(&["--resp-password-file", file.to_str().unwrap()]);
        assert_eq!(need!(run(&server, &[protocol, "hunter2"])), "ok\n");
    }
    fs::remove_dir_all(folder).unwrap();
}
