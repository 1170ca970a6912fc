//! Processes that end with the tests.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

/// A process that the kit started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts `program`, which writes to `log`.
    ///
    /// The kernel kills it when this process ends in whatever way: `setpriv` asks for that and then
    /// becomes `program`.
    pub(crate) fn start(program: &Path, args: &[String], spec: Spec) -> Result<Self, Error> {
        let Spec { log, environment } = spec;
        let program = find(program)?;
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = Command::new(find(Path::new("setpriv"))?);
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(args)
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(Self { child: spawn(command)? })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether it has ended by itself.
    pub(crate) fn ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it at once (`SIGKILL`), and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// Freezes it (`SIGSTOP`): its connections stay open and nothing answers.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen one go on (`SIGCONT`).
    pub(crate) fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The options of a process, besides program and arguments.
#[derive(Debug)]
pub(crate) struct Spec {
    /// The file to which its output is appended.
    pub(crate) log: PathBuf,
    /// Variables besides those of this process.
    pub(crate) environment: Vec<(&'static str, PathBuf)>,
}

/// The program's path, searched as a shell would.
///
/// # Errors
/// [`Error::Missing`] with what to install.
pub(crate) fn find(program: &Path) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let found = if program.components().count() > 1 {
        Some(program.to_owned()).filter(|program| program.is_file())
    } else {
        folders.map(|folder| folder.join(program)).find(|program| program.is_file())
    };
    found.ok_or_else(|| {
        let program = program.display();
        Error::Missing(format!("`{program}` is not installed; `make deps` says how to get it"))
    })
}

/// The last lines of `log`.
pub(crate) fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// Starts `command` from a thread that lives as long as this process: the signal that ends a child
/// with its parent depends on the thread that started it, and each test has its own thread.
fn spawn(mut command: Command) -> io::Result<Child> {
    type Job = Box<dyn FnOnce() + Send>;
    static STARTER: OnceLock<SyncSender<Job>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (sender, jobs) = sync_channel::<Job>(1);
        std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
        sender
    });
    let (reply, child) = sync_channel(1);
    let job = Box::new(move || {
        reply.send(command.spawn()).expect("who asked waits for the answer");
    });
    starter.send(job).expect("the starter never ends");
    child.recv().expect("the starter answers every job")
}

/// Enough to see why a server did not start.
const TAIL_LINES: usize = 20;
