//! The threads that look at file trees and change them.
//!
//! A thread takes one job after the other, without the daemon's loop in between: a thousand small trees are a thousand
//! times a few system calls, and waking threads for each would cost more than these. What waits for disks is done by as many
//! threads as keep the disk's queue filled, what only looks by as many as there are processors for, and there are none once
//! there has been nothing to do for a while.
//!
//! In a chain each job comes as soon as the daemon has heard of the end of the one before. To have a thread fall asleep and
//! be woken for each is a tenth of the chain's time: where the last job came that soon, one thread stays awake for the next.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::yield_now;
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
/// So long a thread stays awake for the next job. The daemon's loop takes a quarter of a millisecond for one at most.
const AWAKE: Duration = Duration::from_micros(400);
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
    /// There are jobs, as far as one can tell without the lock.
    filled: AtomicBool,
    processors: usize,
}

impl Default for Shared {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { state: Mutex::default(), come: Condvar::new(), filled: AtomicBool::new(false), processors }
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// One of them waits for a job awake.
    awake: bool,
    /// The last job for which a thread had nothing else to do came so soon that it is worth while to wait awake.
    soon: bool,
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
        let most = if does == Does::Wait || stuck { THREADS } else { self.shared.lookers() };
        state.jobs.push_back(Box::new(move || {
            if let Ok(done) = catch_unwind(AssertUnwindSafe(job)) {
                // Whoever waited for it may have gone.
                let _ = tell.send(done);
            }
        }));
        self.shared.show(&state);
        let is_seen = state.awake && state.jobs.len() == 1;
        if is_seen {
            return Ok(told);
        }
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
                    self.shared.show(&state);
                    return Err(format!("no thread can be begun: {error}"));
                }
            }
        }
        Ok(told)
    }
}

impl Shared {
    /// Threads for looks, at most.
    fn lookers(&self) -> usize {
        (self.processors + SPARE).min(THREADS)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits awake sees whether there are jobs.
    fn show(&self, state: &State) {
        self.filled.store(!state.jobs.is_empty(), Ordering::Release);
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                self.show(&state);
                state.begun = Some(Instant::now());
                drop(state);
                job();
                state = self.lock();
            }
            state = self.wait(state);
            if state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Waits for a job; there is none then if none has come for a while.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let began = Instant::now();
        if state.soon && !state.awake && self.processors > 1 {
            (state.idle, state.awake) = (state.idle + 1, true);
            drop(state);
            while !self.filled.load(Ordering::Acquire) && began.elapsed() < AWAKE {
                // Whoever else wants the processor goes first: it may be the one who brings the job.
                yield_now();
            }
            state = self.lock();
            (state.idle, state.awake) = (state.idle - 1, false);
        }
        if state.jobs.is_empty() {
            state.idle += 1;
            let nothing = |state: &mut State| state.jobs.is_empty();
            let waited = self.come.wait_timeout_while(state, IDLE, nothing).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            state.idle -= 1;
        }
        if !state.jobs.is_empty() {
            state.soon = began.elapsed() < AWAKE;
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

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
        assert!(threads == pool.shared.lookers() || began.elapsed() > STUCK, "{threads} threads");
        let waits: Vec<_> = (0..2 * THREADS).map(|_| begin(Does::Wait)).collect();
        assert_eq!(pool.shared.lock().threads, THREADS);
        drop(hold);
        for told in looks.into_iter().chain(waits) {
            told.blocking_recv().expect("done");
        }
    }

    /// Around the moment in which who waits awake gives it up.
    #[test]
    fn a_job_is_done_whenever_it_comes() {
        let pool = Pool::default();
        for n in 0..2000_u32 {
            let given = Instant::now();
            let told = pool.run(Does::Wait, move || n).expect("taken");
            assert_eq!(told.blocking_recv(), Ok(n));
            assert!(given.elapsed() < IDLE / 2, "one that nobody sees is found only when a thread gives up");
            let ended = Instant::now();
            while ended.elapsed() < AWAKE * (n % 16) / 10 {
                yield_now();
            }
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
