//! The threads that look at file trees and change them.
//!
//! A thread takes one job after the other, without the daemon's loop in between: a thousand small trees are a thousand
//! times a few system calls, and waking threads for each would cost more than these. What waits for disks is done by as many
//! threads as keep the disk's queue filled, what only looks by as many as there are processors for, and there are none once
//! there has been nothing to do for a while.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Threads at the same time: what they record shares waits for the disk, and each costs memory.
const THREADS: usize = 24;
/// More threads than processors, for looks: one of them may have to wait for a disk after all.
const SPARE: usize = 2;
/// When no job was begun for so long, those who look wait for a disk, and there may be more.
const STUCK: Duration = Duration::from_secs(1);
/// So long a thread waits for the next job.
const IDLE: Duration = Duration::from_secs(2);
/// Nothing here is deep.
const STACK: usize = 1 << 20;

/// What a job does most of the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// It reads what is in memory, most likely.
    Look,
    /// It waits until something is on a disk.
    Wait,
}

type Job = Box<dyn FnOnce() + Send>;

/// The threads. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    come: Condvar,
    /// Threads for looks, at most.
    lookers: usize,
}

impl Default for Shared {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { state: Mutex::default(), come: Condvar::new(), lookers: (processors + SPARE).min(THREADS) }
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// When the last job was begun.
    begun: Option<Instant>,
}

impl Pool {
    /// Has a job done, after those that came before it. The receiver gets nothing if it panics.
    ///
    /// # Errors
    /// When there is no thread, and none can be had.
    pub(super) fn run<T: Send + 'static>(
        &self,
        does: Does,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<oneshot::Receiver<T>, String> {
        let (tell, told) = oneshot::channel();
        let mut state = self.shared.lock();
        let stuck = state.begun.is_some_and(|begun| begun.elapsed() > STUCK);
        let most = if does == Does::Wait || stuck { THREADS } else { self.shared.lookers };
        state.jobs.push_back(Box::new(move || {
            if let Ok(done) = catch_unwind(AssertUnwindSafe(job)) {
                // Whoever waited for it may have gone.
                let _ = tell.send(done);
            }
        }));
        if state.idle >= state.jobs.len() {
            drop(state);
            self.shared.come.notify_one();
        } else if state.threads < most {
            let shared = self.shared.clone();
            let begun =
                std::thread::Builder::new().name("file-tree".to_owned()).stack_size(STACK).spawn(move || shared.work());
            match begun {
                Ok(_) => state.threads += 1,
                // Those that are there come to it.
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    state.jobs.pop_back();
                    return Err(format!("no thread can be begun: {error}"));
                }
            }
        }
        Ok(told)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                state.begun = Some(Instant::now());
                drop(state);
                job();
                state = self.lock();
            }
            state.idle += 1;
            let nothing = |state: &mut State| state.jobs.is_empty();
            let waited = self.come.wait_timeout_while(state, IDLE, nothing).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.idle -= 1;
            if state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn all_jobs_are_done_by_few_threads_and_a_panic_harms_no_other() {
        let pool = Pool::default();
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let begun: Vec<_> = (0..500_usize)
            .map(|n| {
                let (now, most) = (now.clone(), most.clone());
                let job = move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    assert!(n % 100 != 7, "one that is broken");
                    n
                };
                (n, pool.run(Does::Wait, job).expect("taken"))
            })
            .collect();
        for (n, told) in begun {
            assert_eq!(told.blocking_recv().ok(), (n % 100 != 7).then_some(n));
        }
        assert!(most.load(Ordering::SeqCst) <= THREADS);
        assert!(pool.shared.lock().threads <= THREADS);
    }

    #[test]
    fn looks_have_fewer_threads_than_what_waits_for_disks() {
        let pool = Pool::default();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let began = Instant::now();
        let begin = |does| {
            let held = held.clone();
            pool.run(does, move || held.lock().unwrap_or_else(PoisonError::into_inner).recv().is_err()).expect("taken")
        };
        let looks: Vec<_> = (0..2 * THREADS).map(|_| begin(Does::Look)).collect();
        let threads = pool.shared.lock().threads;
        assert!(threads == pool.shared.lookers || began.elapsed() > STUCK, "{threads} threads");
        let waits: Vec<_> = (0..2 * THREADS).map(|_| begin(Does::Wait)).collect();
        assert_eq!(pool.shared.lock().threads, THREADS);
        drop(hold);
        for told in looks.into_iter().chain(waits) {
            told.blocking_recv().expect("done");
        }
    }

    #[test]
    fn threads_end_when_there_is_nothing_to_do_and_begin_again() {
        let pool = Pool::default();
        for round in 0..2 {
            assert_eq!(pool.run(Does::Look, move || round).expect("taken").blocking_recv(), Ok(round));
            while pool.shared.lock().threads > 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
