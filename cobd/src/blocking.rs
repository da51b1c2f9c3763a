//! Blocking work in threads of the runtime.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Lost {
    /// The system made no thread.
    #[error("the system makes no more threads")]
    NoThread,
    /// The work has panicked.
    #[error("it failed in an unexpected way")]
    Panicked,
}

/// Runs blocking work in a thread of its own. The caller always gets an answer.
pub(crate) async fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Lost> {
    let (tell, told) = oneshot::channel();
    run(Box::new(move || drop(tell.send(work())))).await?;
    told.await.map_err(|_| Lost::Panicked)
}

/// A function of its own, so that it is compiled once and not for each kind of work.
async fn run(work: Box<dyn FnOnce() + Send>) -> Result<(), Lost> {
    // `spawn_blocking` panics if it can make no thread: so a task surrounds it.
    match tokio::spawn(async move { tokio::task::spawn_blocking(work).await }).await {
        Ok(done) => done.map_err(|_| Lost::Panicked),
        Err(_) => Err(Lost::NoThread),
    }
}

/// Like [`beside`], but runs the work here if no thread can be made: for short work that must not be lost.
pub(crate) async fn beside_or_here<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let work = Arc::new(Mutex::new(Some(work)));
    let taken = {
        let work = work.clone();
        move || {
            let work = lock(&work).take();
            work.map(|work| work())
        }
    };
    let done = match beside(taken).await {
        Ok(done) => done,
        Err(Lost::NoThread) => {
            let work = lock(&work).take();
            work.map(|work| work())
        }
        Err(Lost::Panicked) => None,
    };
    done.expect("the work in the thread does not panic")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    const CHILD: &str = "COB_WITHOUT_THREADS";
    /// A stack that does not fit into the limit.
    const STACK: usize = 256 << 20;
    const ROOM: u64 = 64 << 20;

    #[test]
    fn a_failure_to_create_a_thread_is_returned() {
        // The limit is for a whole process.
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "blocking::tests::child", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("begun");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stderr));
    }

    #[test]
    fn child() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().thread_stack_size(STACK).build().expect("made");
        let status = std::fs::read_to_string("/proc/self/status").expect("read");
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB"));
        let size: u64 = size.and_then(|kilobytes| kilobytes.parse().ok()).expect("a number");
        let Rlimit { maximum, .. } = getrlimit(Resource::As);
        let limit = |current| setrlimit(Resource::As, Rlimit { current, maximum }).expect("set");
        limit(Some((size << 10) + ROOM));
        assert_eq!(runtime.block_on(beside(|| 1)), Err(Lost::NoThread));
        assert_eq!(runtime.block_on(beside_or_here(|| 3)), 3);
        limit(maximum);
        assert_eq!(runtime.block_on(beside(|| 2)), Ok(2));
        assert_eq!(runtime.block_on(beside(|| panic!("it does"))), Err::<(), _>(Lost::Panicked));
    }
}
