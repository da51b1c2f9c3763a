//! The threads that check and change files inside the daemon.
//!
//! A thread runs job after job without the daemon's loop in between: a thousand small file trees need a thousand times a few
//! system calls, and to wake a thread for each tree would cost more. Jobs that wait for disks get enough threads to
//! fill the disk's queue; jobs that only look get about one thread per processor; idle threads end after a while.
//!
//! In a chain, the next job comes as soon as the daemon has received the end of the previous job. A thread that falls
//! asleep and wakes up for each job costs a tenth of the chain's time. Therefore, if the last job came that soon, one
//! thread stays awake for the next job.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use cob_types::CobId;
use tokio::sync::oneshot;

use super::backend::Work;

/// The most threads. Their records share the waits for the disk, and each thread costs memory.
const THREADS: usize = 24;
/// Additional looking threads beyond the processors: a look may have to wait for a disk after all.
const SPARE: usize = 2;
/// If no job has started for this time, the looks wait for a disk, and more threads are allowed.
const STUCK: Duration = Duration::from_secs(1);
/// How long an idle thread waits for the next job before it ends.
const IDLE: Duration = Duration::from_secs(2);
/// How long a thread stays awake for the next job. The daemon's loop needs at most a quarter of a millisecond.
const AWAKE: Duration = Duration::from_micros(400);
/// The stack size of a thread; no job recurses deeply.
const STACK: usize = 1 << 20;

/// The main activity of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// It reads data that is most likely in memory.
    Look,
    /// It waits for disk writes.
    Wait,
}

type Job = Box<dyn FnOnce() + Send>;

/// The thread pool. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Jobs that run although their callers have stopped waiting.
    abandoned: AtomicUsize,
    come: Condvar,
    /// There are jobs; readable without the lock, so it may lag behind.
    filled: AtomicBool,
    processors: usize,
}

impl Default for Shared {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            state: Mutex::default(),
            abandoned: AtomicUsize::new(0),
            come: Condvar::new(),
            filled: AtomicBool::new(false),
            processors,
        }
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    /// A thread waits awake for a job.
    awake: bool,
    /// The last job for which a thread waited came so soon that it pays to wait awake.
    soon: bool,
    /// The start of the last job.
    begun: Option<Instant>,
}

/// The caller of a job. If it stops waiting, it cancels the job.
struct Caller {
    cancelled: Arc<AtomicBool>,
    /// The job has not ended.
    runs: Arc<Mutex<bool>>,
    shared: Arc<Shared>,
}

impl Drop for Caller {
    fn drop(&mut self) {
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        self.cancelled.store(true, Ordering::Relaxed);
        if *runs {
            self.shared.abandoned.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A job until its end, also if it panics or never starts.
struct Running {
    cancelled: Arc<AtomicBool>,
    runs: Arc<Mutex<bool>>,
    shared: Arc<Shared>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        *runs = false;
        if self.cancelled.load(Ordering::Relaxed) {
            self.shared.abandoned.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Pool {
    /// Runs a job in another thread, unless its caller stopped waiting before the start. The job may look whether its
    /// caller still waits.
    pub(super) fn work<T: Send + 'static>(
        &self,
        does: Does,
        timeout: Option<Duration>,
        failed: fn(String) -> T,
        job: impl FnOnce(&AtomicBool) -> Result<T, String> + Send + 'static,
    ) -> Work<T> {
        let pool = self.clone();
        let future = async move {
            let (cancelled, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(true)));
            let running = Running { cancelled: cancelled.clone(), runs: runs.clone(), shared: pool.shared.clone() };
            let _caller = Caller { cancelled, runs, shared: pool.shared.clone() };
            let begun = pool.run(does, move || match running.cancelled.load(Ordering::Relaxed) {
                true => Err("no caller waits for it any more".to_owned()),
                false => job(&running.cancelled),
            });
            let done = match begun {
                Ok(done) => done.await.unwrap_or_else(|_| Err("its thread has panicked".to_owned())),
                Err(why) => Err(why),
            };
            done.unwrap_or_else(failed)
        };
        Work::Inside { future: Box::pin(future), timeout }
    }

    /// Whether jobs run whose callers have stopped waiting: a file may be on a server that does not answer.
    pub(super) fn has_abandoned(&self) -> bool {
        self.shared.abandoned.load(Ordering::Relaxed) > 0
    }

    /// Queues a job. The receiver gets no result if the job panics.
    ///
    /// # Errors
    /// If there is no thread, and none can be started.
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
                // The receiver may be gone.
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
                std::thread::Builder::new().name("files".to_owned()).stack_size(STACK).spawn(move || shared.work());
            match begun {
                Ok(_) => state.threads += 1,
                // The existing threads take the job.
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    state.jobs.pop_back();
                    self.shared.show(&state);
                    return Err(format!("no thread can be started: {error}"));
                }
            }
        }
        Ok(told)
    }
}

impl Shared {
    /// The most threads for looks.
    fn lookers(&self) -> usize {
        (self.processors + SPARE).min(THREADS)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a thread that waits awake whether there are jobs.
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

    /// Waits for a job. After a timeout the queue is still empty.
    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let began = Instant::now();
        if state.soon && !state.awake && self.processors > 1 {
            (state.idle, state.awake) = (state.idle + 1, true);
            drop(state);
            while !self.filled.load(Ordering::Acquire) && began.elapsed() < AWAKE {
                // Yields to other threads: one of them may bring the job.
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

/// The locks that admit only one job per change object; each is present while a job has it or waits for it.
#[derive(Debug, Default)]
pub(super) struct OneAtATime {
    busy: Mutex<BTreeMap<CobId, Arc<Mutex<()>>>>,
}

impl OneAtATime {
    /// Runs only one job of a change object at a time.
    pub(super) fn alone<T>(&self, cob: &CobId, job: impl FnOnce() -> T) -> T {
        let busy = || self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let own = busy().entry(cob.clone()).or_default().clone();
        let done = {
            let _alone = own.lock().unwrap_or_else(PoisonError::into_inner);
            job()
        };
        drop(own);
        let mut busy = busy();
        // Each waiting job holds a reference, and new jobs need the lock `busy`.
        if busy.get(cob).is_some_and(|own| Arc::strong_count(own) == 1) {
            busy.remove(cob);
        }
        done
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
                    assert!(n % 100 != 7, "a broken worker");
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
    fn looks_have_fewer_threads_than_jobs_that_wait_for_disks() {
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

    /// Jobs that come about when the awake thread gives up.
    #[test]
    fn a_job_runs_at_once_also_when_the_last_thread_goes_idle() {
        let pool = Pool::default();
        for n in 0..2000_u32 {
            let given = Instant::now();
            let told = pool.run(Does::Wait, move || n).expect("taken");
            assert_eq!(told.blocking_recv(), Ok(n));
            assert!(given.elapsed() < IDLE / 2, "an unseen worker is found only when a thread gives up");
            let ended = Instant::now();
            while ended.elapsed() < AWAKE * (n % 16) / 10 {
                yield_now();
            }
        }
    }

    #[test]
    fn idle_threads_end_and_start_again_for_new_jobs() {
        let pool = Pool::default();
        for round in 0..2 {
            assert_eq!(pool.run(Does::Look, move || round).expect("taken").blocking_recv(), Ok(round));
            while pool.shared.lock().threads > 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    #[tokio::test]
    async fn a_job_without_a_caller_counts_until_it_has_ended() {
        let pool = Pool::default();
        let (begun, begins) = oneshot::channel();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let work = pool.work(
            Does::Wait,
            None,
            |why| why,
            move |_| {
                let _ = begun.send(());
                let _ = held.recv();
                Ok("the end".to_owned())
            },
        );
        let Work::Inside { future, .. } = work else { panic!("it is a process") };
        let caller = tokio::spawn(future);
        begins.await.expect("it begins");
        assert!(!pool.has_abandoned(), "its caller waits");
        caller.abort();
        assert!(caller.await.is_err());
        assert!(pool.has_abandoned());
        // Other threads work meanwhile.
        let Work::Inside { future, .. } = pool.work(Does::Wait, None, |why| why, |_| Ok("another".to_owned())) else {
            panic!("it is a process")
        };
        assert_eq!(future.await, "another");
        drop(hold);
        while pool.has_abandoned() {
            tokio::task::yield_now().await;
        }
    }
}
