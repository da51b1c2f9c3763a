//! `cobctl watch` on a terminal: connects the [board](crate::board) to the daemons, the commands and the terminal.

use std::time::Duration;

use cob_types::status::ClusterStatus;
use ratatui::crossterm::event::Event as Input;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::{Forecast, REDRAW, confirmed};
use crate::args::{Global, WatchArgs, Which};
use crate::board::question::Question;
use crate::board::state::{Board, Effect, Event, News};
use crate::board::tty::{Tty, suspend};
use crate::commands::Context;
use crate::commands::followed::{DEPOT, Followed, Looked, with_named};
use crate::commands::view;
use crate::failure::Failure;
use crate::page::worker::{Answer, Worker, now_ms};
use crate::screen::Screen;
use crate::signals::Ends;
use crate::targets::Target;
use crate::verdict::Verdict;

/// The least time between two frames without a key.
const PACE: Duration = Duration::from_millis(50);

/// Shows the board until the operator ends it, or the cluster has converged; returns the last picture with its verdict.
pub(super) async fn follow(
    context: &Context,
    global: &Global,
    screen: &mut Screen,
    args: &WatchArgs,
    named: &[Target],
    forecast: Option<&mut Forecast>,
) -> Result<(ClusterStatus, Verdict), Failure> {
    // A chain of waits leads to hosts that are not shown.
    let targets = with_named(named, &context.targets.all);
    let followed = Followed::start(context.clone(), global.clone(), targets);
    let worker = Worker::start(global.clone())?;
    // Once for all: a signal between two waits counts, too.
    let (mut ends, interrupt) = (Ends::open()?, signal(SignalKind::interrupt())?);
    let has_colour = screen.is_coloured();
    let mut tty = Tty::open().map_err(|error| {
        Failure::environment(format!("the terminal can't show the full screen: {error}"))
            .hint("`cobctl watch --plain` prints a line for each change")
    })?;
    let mut full = Full {
        followed,
        worker,
        args,
        forecast,
        board: Board::default(),
        asks: JoinSet::new(),
        looks: JoinSet::new(),
        interrupt,
    };
    let done = tokio::select! {
        done = full.go_on(context, &mut tty, named, has_colour) => done,
        failure = ends.next() => Err(failure),
    };
    drop(tty);
    done
}

/// The loop of the board.
struct Full<'a> {
    followed: Followed,
    worker: Worker,
    args: &'a WatchArgs,
    forecast: Option<&'a mut Forecast>,
    board: Board,
    asks: JoinSet<(Question, Option<Answer>)>,
    looks: JoinSet<Looked>,
    interrupt: Signal,
}

impl Full<'_> {
    async fn go_on(
        &mut self,
        context: &Context,
        tty: &mut Tty,
        named: &[Target],
        has_colour: bool,
    ) -> Result<(ClusterStatus, Verdict), Failure> {
        let mut depot = interval(DEPOT);
        depot.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut drawn = Instant::now();
        loop {
            let (wide, high) = tty.size()?;
            let mut effects = self.board.take(Event::Size(wide, high));
            effects.extend(self.board.take(Event::Tick(now_ms())));
            for effect in effects {
                self.carry_out(effect, tty)?;
            }
            tty.draw(&self.board, has_colour)?;
            drawn = drawn.max(Instant::now());
            let mut is_new = false;
            let effects = tokio::select! {
                input = tty.next() => match input? {
                    Some(Input::Key(key)) => self.board.take(Event::Key(key)),
                    Some(Input::Resize(..) | Input::FocusGained | Input::FocusLost | Input::Mouse(_) | Input::Paste(_)) | None => continue,
                },
                () = self.followed.live.changed() => {
                    is_new = true;
                    Vec::new()
                }
                () = tokio::time::sleep(REDRAW) => {
                    is_new = true;
                    Vec::new()
                }
                _ = depot.tick(), if self.looks.is_empty() => {
                    self.looks.spawn(self.followed.look_at_depot());
                    continue;
                }
                Some(looked) = self.looks.join_next(), if !self.looks.is_empty() => {
                    self.followed.take(looked.map_err(|error| Failure::environment(error.to_string()))?);
                    continue;
                }
                Some(asked) = self.asks.join_next(), if !self.asks.is_empty() => match asked {
                    Ok((question, answer)) => self.board.take(Event::Answer(question, answer)),
                    Err(error) => return Err(Failure::environment(error.to_string())),
                },
                _ = self.interrupt.recv() => return Ok(self.present()),
            };
            let mut ended = false;
            for effect in effects {
                ended |= effect == Effect::Quit;
                self.carry_out(effect, tty)?;
            }
            if ended {
                return Ok(self.present());
            }
            if is_new {
                tokio::time::sleep_until(drawn + PACE).await;
                if let Some(done) = self.look(context, named, tty).await? {
                    return Ok(done);
                }
            }
        }
    }

    /// Takes the present status; returns the end, if the cluster has converged and the command waits for that.
    async fn look(
        &mut self,
        context: &Context,
        named: &[Target],
        tty: &mut Tty,
    ) -> Result<Option<(ClusterStatus, Verdict)>, Failure> {
        if !self.followed.live.is_complete() {
            return Ok(None);
        }
        let status = self.followed.live.aged();
        let only = &self.args.only;
        let shown = shown(&status, only);
        let (cluster, verdict) = self.followed.cluster(&shown, only);
        let mut forecast = None;
        if let Some(plan) = &mut self.forecast {
            let (mut quiet, _) = Screen::memory();
            forecast = plan.go_on(context, &mut quiet, &status).await?.map(|line| line.text);
        }
        let notes = view::notes(&Screen::memory().0, &shown, only);
        let news = News { shown: shown.clone(), status, cluster, notes, forecast, now_ms: now_ms() };
        for effect in self.board.take(Event::News(Box::new(news))) {
            self.carry_out(effect, tty)?;
        }
        if self.args.until_converged
            && matches!(verdict, Verdict::Converged(_))
            && let Some(verdict) = confirmed(context, named, only).await
        {
            return Ok(Some((shown, verdict)));
        }
        Ok(None)
    }

    /// The present picture with its verdict.
    fn present(&self) -> (ClusterStatus, Verdict) {
        let shown = shown(&self.followed.live.cluster(), &self.args.only);
        let (_, verdict) = self.followed.cluster(&shown, &self.args.only);
        (shown, verdict)
    }

    fn carry_out(&mut self, effect: Effect, tty: &mut Tty) -> Result<(), Failure> {
        match effect {
            Effect::Ask(question) => {
                let worker = self.worker.clone();
                self.asks.spawn(async move {
                    let answer = match question.line() {
                        Some(line) => worker.ask(line).await,
                        None => None,
                    };
                    (question, answer)
                });
            }
            Effect::Redraw => tty.clear()?,
            Effect::Suspend => suspend(),
            Effect::Quit => {}
        }
        Ok(())
    }
}

/// The named hosts and change objects; all if none is named.
fn shown(status: &ClusterStatus, only: &[Which]) -> ClusterStatus {
    let mut shown = status.clone();
    view::narrow(&mut shown, only);
    shown.hosts.retain(|host| only.is_empty() || only.iter().any(|which| which.host() == host.name));
    shown
}
