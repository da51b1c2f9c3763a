//! Runs the commands of the page: questions, which end with an answer, and orders, which go on for a while.
//!
//! Commands run in a thread of their own, so that a plan of a large switch does not hold up the streams.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Value;
use serde_with::skip_serializing_none;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};

use super::message::Order;
use super::model::generate;
use super::question::{Line, Program};
use crate::args::Global;
use crate::commands::carry_out;
use crate::failure::{Exit, Failure};
use crate::screen::{Screen, Written};

/// How many questions are answered at the same time; the others wait.
const AT_ONCE: usize = 8;
/// How many questions and orders may wait for their start.
const WAITING: usize = 64;
/// How many orders are kept.
const ORDERS: usize = 50;
/// How many orders may run at the same time.
const RUNNING: usize = 8;
/// The kept end of an order's output, in bytes.
const OUTPUT: usize = 16 << 10;

/// The answer to a question.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Answer {
    /// The exit status of the command.
    pub exit: u8,
    /// Its document, or the list of its documents.
    pub answer: Value,
    /// Its messages besides the answer.
    pub problems: Vec<String>,
    /// Why it failed: `error`, `causes`, `hints`.
    pub failure: Option<Value>,
}

impl Answer {
    /// The answer of a command that failed before it had an answer.
    pub(crate) fn of_failure(failure: &Failure) -> Self {
        let failed = Some(failure.to_json());
        Self { exit: failure.code(), answer: Value::Null, problems: Vec::new(), failure: failed }
    }
}

struct Job {
    line: Line,
    ends: Ends,
}

enum Ends {
    Answered(oneshot::Sender<Answer>),
    Ordered(u64, Screen),
}

/// The orders of the page.
#[derive(Debug, Default)]
struct Orders {
    last: u64,
    all: Vec<Given>,
}

#[derive(Debug)]
struct Given {
    order: Order,
    written: Written,
}

/// The thread that runs commands.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    jobs: mpsc::Sender<Job>,
    orders: Arc<Mutex<Orders>>,
    news: Arc<Notify>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Job").field("line", &self.line).finish_non_exhaustive()
    }
}

impl Worker {
    /// Starts the thread. Commands have these options of every command.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start(global: Global) -> std::io::Result<Self> {
        let (jobs, queue) = mpsc::channel(WAITING);
        let worker = Self { jobs, orders: Arc::default(), news: Arc::default() };
        let (orders, news) = (Arc::clone(&worker.orders), Arc::clone(&worker.news));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        std::thread::Builder::new().name("commands".to_owned()).spawn(move || {
            tokio::task::LocalSet::new().block_on(&runtime, run(global, queue, orders, news));
        })?;
        Ok(worker)
    }

    /// Answers a question. Absent: too many questions wait.
    pub(crate) async fn ask(&self, line: Line) -> Option<Answer> {
        let (tell, answer) = oneshot::channel();
        self.jobs.try_send(Job { line, ends: Ends::Answered(tell) }).ok()?;
        answer.await.ok()
    }

    /// Gives an order; returns its number. Absent: too many orders run.
    pub(crate) fn order(&self, line: Line) -> Option<u64> {
        let place = self.jobs.try_reserve().ok()?;
        let (screen, written) = Screen::memory();
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        if orders.all.iter().filter(|given| given.order.ended_ms.is_none()).count() >= RUNNING {
            return None;
        }
        orders.last += 1;
        let id = orders.last;
        let words = std::iter::once(line.program.name()).chain(line.words.iter().map(String::as_str));
        let words = words.collect::<Vec<_>>().join(" ");
        let order = Order { id, words, began_ms: now_ms(), ended_ms: None, exit: None, output: String::new() };
        orders.all.push(Given { order, written });
        if orders.all.len() > ORDERS
            && let Some(oldest) = orders.all.iter().position(|given| given.order.ended_ms.is_some())
        {
            orders.all.remove(oldest);
        }
        drop(orders);
        place.send(Job { line, ends: Ends::Ordered(id, screen) });
        self.news.notify_one();
        Some(id)
    }

    /// The orders, with their output so far.
    pub(crate) fn orders(&self) -> Vec<Order> {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let with_output = |given: &Given| Order { output: output(&given.written), ..given.order.clone() };
        orders.all.iter().map(with_output).collect()
    }

    /// Whether an order runs, so that its output may grow.
    pub(crate) fn is_busy(&self) -> bool {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.all.iter().any(|given| given.order.ended_ms.is_none())
    }

    /// Waits until an order begins or ends.
    pub(crate) async fn changed(&self) {
        self.news.notified().await;
    }
}

async fn run(global: Global, mut queue: mpsc::Receiver<Job>, orders: Arc<Mutex<Orders>>, news: Arc<Notify>) {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    while let Some(Job { line, ends }) = queue.recv().await {
        let (global, orders, news, places) =
            (global.clone(), Arc::clone(&orders), Arc::clone(&news), Arc::clone(&places));
        tokio::task::spawn_local(async move {
            match ends {
                Ends::Answered(mut tell) => {
                    let _place = places.acquire().await;
                    // A tab that has left its view needs no answer: the command ends where it waits.
                    tokio::select! {
                        answer = answer(global, line) => drop(tell.send(answer)),
                        () = tell.closed() => {}
                    }
                }
                Ends::Ordered(id, mut screen) => {
                    let global = Global { json: false, ..global };
                    let exit = match execute(&line, &global, &mut screen).await {
                        Ok(exit) => exit,
                        Err(failure) => {
                            failure.print(&mut screen);
                            failure.code()
                        }
                    };
                    let mut orders = orders.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(given) = orders.all.iter_mut().find(|given| given.order.id == id) {
                        (given.order.exit, given.order.ended_ms) = (Some(exit), Some(now_ms()));
                    }
                    drop(orders);
                    news.notify_one();
                }
            }
        });
    }
}

/// Runs a command; returns its exit status.
async fn execute(line: &Line, global: &Global, screen: &mut Screen) -> Result<u8, Failure> {
    match line.program {
        Program::Cobctl => carry_out(&line.words, global, screen).await.map(Exit::code),
        Program::Cobgen => {
            let ended = generate(&line.words).await?;
            screen.say(String::from_utf8_lossy(&ended.stderr).trim_end());
            screen.line(String::from_utf8_lossy(&ended.stdout).trim_end())?;
            let status = ended.status.code().and_then(|code| u8::try_from(code).ok());
            status.ok_or_else(|| Failure::environment(format!("cobgen was ended from outside: {}", ended.status)))
        }
    }
}

async fn answer(global: Global, line: Line) -> Answer {
    let (mut screen, written) = Screen::memory();
    let global = Global { json: true, ..global };
    let (exit, failure) = match execute(&line, &global, &mut screen).await {
        Ok(exit) if line.program == Program::Cobgen && exit > 1 => {
            let said = [written.err(), written.out()].concat();
            (exit, Some(Failure::usage(said.trim().to_owned()).to_json()))
        }
        Ok(exit) => (exit, None),
        Err(failure) => (failure.code(), Some(failure.to_json())),
    };
    let text = written.out();
    let documents = serde_json::Deserializer::from_str(&text).into_iter::<Value>().map_while(Result::ok);
    let answer = if line.many { documents.collect() } else { documents.last().unwrap_or_default() };
    let problems = written.err().lines().map(str::to_owned).filter(|line| !line.is_empty()).collect();
    Answer { exit, answer, problems, failure }
}

/// The end of the output of a command, messages first.
fn output(written: &Written) -> String {
    let mut text = written.err();
    text.push_str(&written.out());
    if text.len() > OUTPUT {
        let from = (text.len() - OUTPUT..).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
        text.drain(..from);
    }
    text
}

/// The time of this machine, in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
