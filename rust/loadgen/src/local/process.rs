//! One child process with its log.
//!
//! Owns: the child. Promises: it is ended and waited for on drop. Never: signals anything else.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{kill_process, waitpid, Pid, Signal, WaitOptions};

use super::LocalError;

/// Pause between two looks at a child that is starting or ending.
const POLL_MS: u64 = 10;
/// Bytes of a log that an error shows.
const LOG_TAIL_BYTES: usize = 3_000;

/// A command for `gabiond` that takes over no setting by accident: what a shell has under `GABION_`
/// is meant for something else.
pub fn without_settings(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("GABION_") {
            command.env_remove(variable);
        }
    }
    command
}

/// A running child.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    released: bool,
}

impl Process {
    /// Starts `command` with its output in `dir/NAME.log`; `fix` says what to do when the program
    /// is not there.
    ///
    /// # Errors
    /// The log cannot be written, or the program not be started.
    pub fn start(
        name: &str,
        mut command: Command,
        dir: &Path,
        fix: &'static str,
    ) -> Result<Process, LocalError> {
        let log = dir.join(format!("{name}.log"));
        let out = File::create(&log).map_err(LocalError::file(&log))?;
        let err = out.try_clone().map_err(LocalError::file(&log))?;
        let program = PathBuf::from(command.get_program());
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn();
        let child = child.map_err(|source| LocalError::Start {
            program,
            source,
            fix,
        })?;
        Ok(Process {
            name: name.to_owned(),
            child,
            log,
            released: false,
        })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Looks until `ready` gives a value, the child ends, or `patience` is over.
    ///
    /// # Errors
    /// The child ended or was not ready in time; the error carries the end of its log.
    pub async fn wait_until<T>(
        &mut self,
        patience: Duration,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, LocalError> {
        let give_up = Instant::now() + patience;
        loop {
            if let Some(value) = ready() {
                return Ok(value);
            }
            self.check_running()?;
            if Instant::now() > give_up {
                return Err(self.failed(format!("was not ready within {patience:?}")));
            }
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
    }

    /// Looks whether it still runs.
    ///
    /// # Errors
    /// It has ended.
    pub fn check_running(&mut self) -> Result<(), LocalError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(self.failed(format!("ended too early ({status})"))),
            _ => Ok(()),
        }
    }

    /// An error about this child, with the end of its log.
    pub fn failed(&self, what: String) -> LocalError {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let mut from = log.len().saturating_sub(LOG_TAIL_BYTES);
        while !log.is_char_boundary(from) {
            from += 1;
        }
        LocalError::Child {
            name: self.name.clone(),
            what,
            log: log[from..].to_owned(),
        }
    }

    /// Freezes it: it keeps its sockets and answers nothing. Returns once all its threads stand
    /// still.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        if let Some(pid) = self.pid() {
            let _ = waitpid(Some(pid), WaitOptions::UNTRACED);
        }
    }

    /// Lets a frozen child go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it at once, as a crash would (SIGKILL), and waits for it.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end (SIGTERM) and waits at most `patience`.
    ///
    /// # Errors
    /// It is still there, and is then killed.
    pub async fn stop(&mut self, patience: Duration) -> Result<ExitStatus, LocalError> {
        self.end_by(Signal::TERM, patience).await
    }

    /// The same with SIGQUIT, by which nginx answers what is under way first.
    ///
    /// # Errors
    /// As [`Process::stop`].
    pub async fn quit(&mut self, patience: Duration) -> Result<ExitStatus, LocalError> {
        self.end_by(Signal::QUIT, patience).await
    }

    async fn end_by(
        &mut self,
        signal: Signal,
        patience: Duration,
    ) -> Result<ExitStatus, LocalError> {
        self.signal(signal);
        let give_up = Instant::now() + patience;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(status);
            }
            if Instant::now() > give_up {
                let error = self.failed(format!("did not end within {patience:?} of {signal:?}"));
                self.kill();
                return Err(error);
            }
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
    }

    /// As [`Process::stop`], for where nothing can be awaited; what is still there then is killed.
    pub fn end_in_order(&mut self, patience: Duration) {
        self.signal(Signal::TERM);
        let give_up = Instant::now() + patience;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(POLL_MS));
        }
        self.kill();
    }

    /// Lets it live on after this value is dropped; its process id is then the caller's business.
    pub fn release(&mut self) -> u32 {
        self.released = true;
        self.id()
    }

    /// Tells it to read its configuration again (SIGHUP).
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    fn signal(&self, signal: Signal) {
        // the child is not waited for yet, so its id cannot belong to another process
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, signal);
        }
    }

    fn pid(&self) -> Option<Pid> {
        i32::try_from(self.id()).ok().and_then(Pid::from_raw)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.released {
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RunDir;
    use super::*;

    #[tokio::test]
    async fn a_child_that_ends_too_early_shows_its_log() {
        let dir = RunDir::new("gabion-process").unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo bad luck; exit 3"]);
        let mut child = Process::start("unlucky", command, dir.path(), "").unwrap();
        let never = child
            .wait_until(Duration::from_secs(10), || None::<()>)
            .await;
        let text = never.unwrap_err().to_string();
        assert!(
            text.contains("unlucky ended too early") && text.contains("bad luck"),
            "{text}"
        );
    }

    #[tokio::test]
    async fn stop_ends_a_child_and_drop_leaves_none_behind() {
        let dir = RunDir::new("gabion-process").unwrap();
        let mut command = Command::new("sleep");
        command.arg("600");
        let mut child = Process::start("sleeper", command, dir.path(), "").unwrap();
        let status = child.stop(Duration::from_secs(10)).await.unwrap();
        assert!(!status.success());
        let mut command = Command::new("sleep");
        command.arg("600");
        let child = Process::start("sleeper2", command, dir.path(), "").unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        drop(child);
        assert!(rustix::process::test_kill_process(pid).is_err());
        let path = dir.path().to_owned();
        drop(dir);
        assert!(!path.exists());
    }

    #[test]
    fn a_program_that_is_not_there_says_what_to_do() {
        let dir = RunDir::new("gabion-process").unwrap();
        let command = Command::new("/nowhere/envoy");
        let error = Process::start("envoy", command, dir.path(), "run ./tools/test").unwrap_err();
        assert!(error.to_string().ends_with("run ./tools/test"), "{error}");
    }
}
