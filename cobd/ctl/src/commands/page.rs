//! `cobctl page`: shows the cluster in a browser.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::Duration;

use cob_depot::Depot;
use cob_types::status::ClusterStatus;
use cob_types::{CobId, GenerationNumber};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::followed::{DEPOT, Followed};
use super::plan::most_common;
use super::{Context, context};
use crate::args::{Global, PageArgs};
use crate::failure::{CommandResult, Exit, Failure};
use crate::needs::Needs;
use crate::page::door::Door;
use crate::page::faults::Trials;
use crate::page::feed::Feed;
use crate::page::model::Model;
use crate::page::picture::{Drawn, View};
use crate::page::serve::{CobAnswer, Desk, Own, router};
use crate::page::worker::{Answer, Worker, now_ms};
use crate::screen::Screen;
use crate::signals::{Ends, Interrupts};
use crate::targets::Targets;

/// The least time between two messages to the tabs.
const PACE: Duration = Duration::from_millis(250);
/// How often idle tabs learn that the connection is alive.
const ALIVE: Duration = Duration::from_secs(10);
/// How many questions for this loop may wait.
const WAITING: usize = 64;

pub(super) async fn run(global: &Global, screen: &mut Screen, args: &PageArgs) -> CommandResult {
    let context = context(global, screen)?;
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await.map_err(|error| {
        Failure::environment(format!("port {} of 127.0.0.1 can't be opened: {error}", args.port))
            .hint("leave --port out: a free port is chosen")
    })?;
    let door = Door::new(listener.local_addr()?.port()).map_err(|e| Failure::environment(e.to_string()))?;
    let feed = Feed::new();
    let worker = Worker::start(global.clone())?;
    let (own, questions) = mpsc::channel(WAITING);
    let model = args.model.as_deref().map(|path| {
        Model::open(path, context.targets.depot.as_deref())
            .map_err(|error| Failure::usage(format!("the model {} can't be read: {error}", path.display())))
    });
    let model = model.transpose()?;
    let (targets, trials) = (context.targets.clone(), Trials::new());
    let desk = Desk { door: door.clone(), feed: feed.clone(), worker: worker.clone(), model, targets, trials, own };
    screen.line(&door.address())?;
    screen.say("The address contains a key: a person who knows the address can give orders in your name. Ctrl-C ends the page.");
    let _opened = if args.open { Some(open(&door, screen)?) } else { None };
    let (mut ends, interrupts) = (Ends::open()?, Interrupts::open()?);
    let mut page = Page::start(context, global.clone(), feed, worker);
    tokio::select! {
        served = async { axum::serve(listener, router(desk)).await } => Err(served.map_or_else(Failure::from, |()| {
            Failure::environment("the server has ended")
        })),
        failure = page.go_on(questions) => Err(failure),
        failure = ends.next() => Err(failure),
        () = interrupts.pressed() => Ok(Exit::Yes),
    }
}

/// Opens the browser. Its command line shows only a private file that leads to the address: other users of this machine can
/// read command lines.
fn open(door: &Door, screen: &mut Screen) -> Result<tempfile::NamedTempFile, Failure> {
    let mut file = tempfile::Builder::new().prefix("cobctl-page-").suffix(".html").tempfile()?;
    let address = door.address();
    writeln!(
        file,
        "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={address}\"><a href=\"{address}\">cobctl page</a>"
    )?;
    file.flush()?;
    let quiet = std::process::Stdio::null;
    let started =
        std::process::Command::new("xdg-open").arg(file.path()).stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn();
    if let Err(error) = started {
        screen.problem("warning", &format!("no browser could be started with `xdg-open`: {error}"));
        screen.problem("hint", "open the address above in a browser");
    }
    Ok(file)
}

/// The loop that keeps the picture.
struct Page {
    followed: Followed,
    feed: Feed,
    worker: Worker,
    /// The generation whose graph was read, or could not be read.
    drawn: Option<GenerationNumber>,
    /// The graph could not be read: the next look at the depot tries again.
    is_graph_missing: bool,
}

impl Page {
    fn start(context: Context, global: Global, feed: Feed, worker: Worker) -> Self {
        let targets = context.targets.all.clone();
        Self { followed: Followed::start(context, global, targets), feed, worker, drawn: None, is_graph_missing: false }
    }

    /// Keeps the picture until something fails for good.
    async fn go_on(&mut self, mut questions: mpsc::Receiver<Own>) -> Failure {
        let (mut depot, mut alive) = (interval(DEPOT), interval(ALIVE));
        depot.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = Instant::now();
        loop {
            let busy = self.worker.is_busy();
            tokio::select! {
                () = self.followed.live.changed() => {}
                () = self.worker.changed() => {}
                () = tokio::time::sleep(PACE), if busy => {}
                _ = alive.tick() => {
                    self.feed.idle(now_ms());
                    continue;
                }
                _ = depot.tick() => {
                    if std::mem::take(&mut self.is_graph_missing) {
                        self.drawn = None;
                    }
                    let looked = self.followed.look_at_depot().await;
                    self.followed.take(looked);
                }
                question = questions.recv() => {
                    match question {
                        Some(question) => self.answer(question),
                        None => return Failure::environment("the server has ended"),
                    }
                    continue;
                }
            }
            if !self.followed.live.is_complete() {
                continue;
            }
            tokio::time::sleep_until(told + PACE).await;
            told = Instant::now();
            let status = self.followed.live.aged();
            let needs = self.needs(&status).await;
            let (cluster, _) = self.followed.cluster(&status, &[]);
            self.feed.take(View { status: &status, cluster, now_ms: now_ms() }, self.worker.orders(), needs);
        }
    }

    /// The input of the graph, if the active generation has changed or could not be read before.
    async fn needs(&mut self, status: &ClusterStatus) -> Option<Drawn> {
        let generation = most_common(status);
        if generation == GenerationNumber(0) || self.drawn == Some(generation) {
            return None;
        }
        self.drawn = Some(generation);
        let targets = self.followed.context.targets.clone();
        let read = tokio::task::spawn_blocking(move || needs_of(&targets, generation)).await;
        match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(pairs) => Some(Drawn { generation: Some(generation), pairs, missing: None }),
            Err(why) => {
                self.is_graph_missing = true;
                Some(Drawn { missing: Some(why), ..Drawn::default() })
            }
        }
    }

    fn answer(&self, question: Own) {
        // A tab that has left its view takes no answer.
        match question {
            Own::Cob(id, tell) => drop(tell.send(self.cob(&id))),
            Own::Generations(tell) => {
                let depot = self.followed.context.targets.depot.clone();
                tokio::task::spawn_blocking(move || drop(tell.send(generations(depot.as_deref()))));
            }
        }
    }

    fn cob(&self, id: &CobId) -> Option<CobAnswer> {
        let status = self.followed.live.aged();
        let host = status.hosts.iter().find(|host| host.name.as_str() == id.host_str())?;
        let cob = host.cobs.iter().find(|cob| cob.id == *id)?.clone();
        Some(CobAnswer { host_now_ms: host.now_ns / 1_000_000, cob })
    }
}

/// What the change objects of a generation need, or why it is not known.
fn needs_of(targets: &Targets, generation: GenerationNumber) -> Result<BTreeSet<(CobId, CobId)>, String> {
    match Needs::read(targets, generation) {
        Ok(Some(needs)) => Ok(needs.pairs),
        Ok(None) => Err("the graph needs the depot: start `cobctl page` with --depot or COB_DEPOT".to_owned()),
        Err(error) => Err(error.in_a_line()),
    }
}

/// The generations of a depot, the newest first.
fn generations(depot: Option<&std::path::Path>) -> Answer {
    let read = || -> Result<_, String> {
        let no_depot = "the list of generations needs the depot: start `cobctl page` with --depot or COB_DEPOT";
        let log = Depot::open(depot.ok_or(no_depot)?).and_then(|depot| depot.list()).map_err(|e| e.to_string())?;
        serde_json::to_value(log).map_err(|e| e.to_string())
    };
    match read() {
        Ok(answer) => Answer { exit: Exit::Yes.code(), answer, problems: Vec::new(), failure: None },
        Err(error) => Answer::of_failure(&Failure::environment(error)),
    }
}
