//! Servers that are measured from outside: each is a process of its own on core 0, whose CPU time is read from the
//! kernel's accounts, while the load has core 1.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::Context as _;

/// Rounds of each case, all cases in turn; a figure is the median of as many.
pub const ROUNDS: usize = 5;

/// A program bound to this core. `taskset` becomes the program, so its process id is the program's.
pub fn on_core(core: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program);
    command
}

/// A server. It stops when this is dropped.
#[derive(Debug)]
pub struct Served {
    child: Child,
    port: u16,
    config: PathBuf,
    /// Keeps the pipe of its standard output open.
    _said: Option<BufReader<ChildStdout>>,
}

impl Served {
    /// Starts this program as the server for the argument `word`, which prints its address for `wire`.
    ///
    /// # Errors
    /// If it does not start.
    pub fn this(word: &str, wire: &str) -> anyhow::Result<Self> {
        let mut command = on_core("0", std::env::current_exe()?);
        Self::start(command.arg(word), wire, PathBuf::new())
    }

    /// Starts Sluicegate with `wire` and http only: the program in the variable `SLUICEGATE`, else the one beside this
    /// program. `flag` takes the file with `config`; `more` changes the command.
    ///
    /// # Errors
    /// If it does not start.
    pub fn sluicegate(
        wire: &str,
        (flag, config): (&str, &str),
        more: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Self> {
        let beside = std::env::current_exe()?.with_file_name("sluicegate");
        let program = std::env::var_os("SLUICEGATE").map_or(beside, PathBuf::from);
        let name = format!("sluicegate-bench-{}-{}.yaml", std::process::id(), fastrand::u64(..));
        let file = std::env::temp_dir().join(name);
        fs::write(&file, config)?;
        let mut command = on_core("0", program);
        command.args(["serve", "--listen", "127.0.0.1:0", flag]).arg(&file);
        for other in ["resp", "rls", "admin"] {
            let listen = if other == wire { "127.0.0.1:0" } else { "off" };
            command.env(format!("SLUICEGATE__{}__LISTEN", other.to_uppercase()), listen);
        }
        more(&mut command);
        Self::start(&mut command, wire, file)
            .context("build it with: cargo build --release -p sluicegate-cli")
    }

    /// Starts a server that listens at `port` but does not print it.
    ///
    /// # Errors
    /// If it does not start.
    pub fn at(port: u16, command: &mut Command) -> anyhow::Result<Self> {
        let child = command.stdout(Stdio::null()).spawn()?;
        Ok(Self { child, port, config: PathBuf::new(), _said: None })
    }

    fn start(command: &mut Command, wire: &str, config: PathBuf) -> anyhow::Result<Self> {
        let mut child =
            command.stdout(Stdio::piped()).spawn().context("taskset must be installed")?;
        let mut said = BufReader::new(child.stdout.take().context("it is piped")?);
        let mut server = Self { child, port: 0, config, _said: None };
        let start = format!("listening on {wire}://127.0.0.1:");
        while server.port == 0 {
            let mut line = String::new();
            let more = said.read_line(&mut line)? > 0;
            anyhow::ensure!(more, "the server does not say where it listens");
            if let Some(port) = line.trim().strip_prefix(&start) {
                server.port = port.parse()?;
            }
        }
        server._said = Some(said);
        Ok(server)
    }

    /// The port on the loopback interface.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// CPU time of all its threads per decision, µs, while `load` keeps it busy and returns the number of decisions.
    ///
    /// # Errors
    /// That of the load.
    pub fn cpu_us(&self, load: impl FnOnce(u16) -> anyhow::Result<u64>) -> anyhow::Result<f64> {
        let before = self.cpu_ns()?;
        let decisions = load(self.port)?;
        Ok((self.cpu_ns()? - before) as f64 / decisions as f64 / 1_000.0)
    }

    fn cpu_ns(&self) -> anyhow::Result<u64> {
        let mut spent = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            let on_cpu = text.split(' ').next().context("schedstat has three numbers")?;
            spent += on_cpu.parse::<u64>()?;
        }
        Ok(spent)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_file(&self.config).ok();
    }
}

/// Measures all servers under `load`, after a round that is not counted, and prints them as a table beside the first
/// one.
///
/// # Errors
/// That of the load.
pub fn print_beside_the_first(
    cases: &[(&str, Served)],
    load: impl Fn(u16) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    for (_, server) in cases {
        server.cpu_us(&load)?;
    }
    let mut figures = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (figures, (_, server)) in figures.iter_mut().zip(cases) {
            figures.push(server.cpu_us(&load)?);
        }
    }
    let (first, _) = cases.first().context("there is a case")?;
    println!("| server, on one core | server CPU, µs a decision | × {first} |");
    println!("|---|--:|--:|");
    for ((name, _), own) in cases.iter().zip(&figures) {
        let ratios = own.iter().zip(&figures[0]).map(|(own, first)| own / first);
        let ([least, median, most], [_, ratio, _]) = (spread(own.iter().copied()), spread(ratios));
        println!("| {name} | {median:.2} [{least:.2}..{most:.2}] | {ratio:.2} |");
    }
    Ok(())
}

/// The minimum, the median and the maximum.
pub fn spread(figures: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut figures: Vec<_> = figures.collect();
    figures.sort_by(f64::total_cmp);
    [figures[0], figures[figures.len() / 2], figures[figures.len() - 1]]
}
