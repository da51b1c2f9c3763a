//! `cobctl notify`: watches the cluster and tells people and programs of it.

use std::time::{Duration, Instant};

use cob_types::api::StatusOf;
use tokio::sync::mpsc;

use super::history::Following;
use super::{Context, context};
use crate::args::{Global, NotifyArgs};
use crate::clocks::now_ns;
use crate::failure::{CommandResult, Exit, Failure};
use crate::live::Live;
use crate::notify::{
    Delays, Message, Notice, NoticeKind, NoticeState, NotifyConfig, NotifyState, Outbox, Receiver, of_entry, send,
};
use crate::screen::Screen;
use crate::signals::{Ends, Interrupts};
use crate::words::{count, span, utc};

/// The longest pause between two looks: conditions grow old without news of a host.
const LOOK: Duration = Duration::from_secs(1);
/// The pause between two looks for other hosts.
const HOSTS: Duration = Duration::from_secs(30);
/// The pause between two questions about histories.
const HISTORY: Duration = Duration::from_secs(5);

/// How a message to a receiver ended.
struct Sent {
    receiver: String,
    result: Result<(), String>,
}

pub(super) async fn run(global: &Global, screen: &mut Screen, args: &NotifyArgs) -> CommandResult {
    let config = NotifyConfig::read(&args.file).map_err(|error| Failure::usage(error.to_string()))?;
    if args.test {
        return test(screen, &config).await;
    }
    let (mut ends, interrupts) = (Ends::open()?, Interrupts::open()?);
    let kept = NotifyState::read(&config.state).map_err(|error| {
        Failure::environment(format!("{} can't be read: {error}", config.state.display()))
            .hint("remove the file to begin anew; open conditions are then told again")
    })?;
    let mut watch = Watch::new(config, kept);
    let (done, mut sent) = mpsc::channel(watch.config.receivers.len().max(1));
    let mut abandoned = std::pin::pin!(screen.abandoned());
    loop {
        let here = context(global, screen)?;
        let targets = here.only(&[]).await?;
        let receivers = count(watch.config.receivers.len(), "receiver");
        screen.say(&format!("watching {} for {receivers}", count(targets.len(), "host")));
        let mut live = Live::start(&here.client, &targets, StatusOf::Active);
        let mut following = Following::new(&here);
        following.continue_at(&watch.kept.positions);
        let mut histories = tokio::time::interval(HISTORY);
        histories.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut again = Instant::now() + HOSTS;
        loop {
            let mut notices = Vec::new();
            tokio::select! {
                () = live.changed() => {}
                () = tokio::time::sleep(LOOK) => {}
                _ = histories.tick() => notices = watch.read(&here, screen, &mut following).await?,
                Some(sent) = sent.recv() => watch.sent(screen, &sent),
                failure = ends.next() => return Err(failure),
                () = interrupts.pressed() => return Ok(Exit::Yes),
                error = &mut abandoned => return Err(error.into()),
            }
            if live.is_complete() {
                let delays = Delays { stuck: watch.config.stuck_after, away: watch.config.away_after };
                notices.extend(watch.kept.observer.look(&live.aged(), now_ns(), delays));
            }
            watch.take(&here, screen, notices)?;
            watch.send_due(&done);
            watch.keep()?;
            // A new generation may have other hosts.
            if Instant::now() >= again {
                again = Instant::now() + HOSTS;
                if context(global, &mut Screen::memory().0).is_ok_and(|new| new.targets.all != here.targets.all) {
                    break;
                }
            }
        }
    }
}

/// The state of the command.
struct Watch {
    config: NotifyConfig,
    kept: NotifyState,
    /// Older entries of histories are no news.
    since_ns: u64,
    /// The bytes of the last written state would be others.
    changed: bool,
}

impl Watch {
    fn new(config: NotifyConfig, kept: Option<NotifyState>) -> Self {
        // Without a former run, only what happens from now on is news.
        let since_ns = if kept.is_some() { 0 } else { now_ns() };
        let mut kept = kept.unwrap_or_default();
        kept.outboxes.retain(|name, _| config.receivers.iter().any(|receiver| receiver.name == *name));
        Self { config, kept, since_ns, changed: true }
    }

    /// The notices of new entries in the histories.
    async fn read(
        &mut self,
        context: &Context,
        screen: &mut Screen,
        following: &mut Following,
    ) -> Result<Vec<Notice>, Failure> {
        let mut notices = Vec::new();
        let since_ns = self.since_ns;
        let is_new = |notice: &Notice| notice.at_ns >= since_ns;
        following.go_on(context, screen, |entry| notices.extend(of_entry(&entry).filter(is_new))).await?;
        for (host, position) in following.positions() {
            self.changed |= self.kept.positions.insert(host, position) != Some(position);
        }
        Ok(notices)
    }

    /// Shows notices, and adds them to the messages of receivers.
    fn take(&mut self, context: &Context, screen: &mut Screen, notices: Vec<Notice>) -> Result<(), Failure> {
        for notice in notices {
            self.changed = true;
            let line = format!("{}  {:<11} {}", utc(notice.at_ns), notice.kind.word(), notice.text);
            context.answer(screen, &notice, &line)?;
            for receiver in self.config.receivers.iter().filter(|receiver| receiver.on.contains(&notice.kind)) {
                let outbox = self.kept.outboxes.entry(receiver.name.clone()).or_default();
                outbox.add(notice.clone(), receiver.every, now_ns());
            }
        }
        Ok(())
    }

    /// Sends the messages that are due, each in a task of its own.
    fn send_due(&mut self, done: &mpsc::Sender<Sent>) {
        for receiver in &self.config.receivers {
            let now = now_ns();
            let message =
                self.kept.outboxes.get_mut(&receiver.name).and_then(|outbox: &mut Outbox| outbox.message(now));
            let Some(message) = message else { continue };
            let (receiver, done) = (receiver.clone(), done.clone());
            tokio::spawn(async move {
                let result = send(&receiver.way, &message, now).await;
                // The command has ended: the message is sent again by the next run.
                let _ = done.send(Sent { receiver: receiver.name, result }).await;
            });
        }
    }

    fn sent(&mut self, screen: &mut Screen, sent: &Sent) {
        self.changed = true;
        let receiver = self.config.receivers.iter().find(|receiver| receiver.name == sent.receiver);
        let (Some(Receiver { every, .. }), Some(outbox)) = (receiver, self.kept.outboxes.get_mut(&sent.receiver))
        else {
            return;
        };
        match &sent.result {
            Ok(()) => outbox.sent(*every, now_ns()),
            Err(why) => {
                let pause = outbox.failed(now_ns());
                let pause = span(u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX));
                screen.problem("error", &format!("the message to {:?} failed, again in {pause}: {why}", sent.receiver));
            }
        }
    }

    /// Writes the state, if it has changed.
    fn keep(&mut self) -> Result<(), Failure> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let path = &self.config.state;
        let failed = |error| Failure::environment(format!("{} can't be written: {error}", path.display()));
        self.kept.write(path).map_err(failed)
    }
}

/// Sends a test message to each receiver.
async fn test(screen: &mut Screen, config: &NotifyConfig) -> CommandResult {
    let now = now_ns();
    let notice = Notice {
        id: format!("test/{now}"),
        kind: NoticeKind::Switched,
        state: NoticeState::Happened,
        at_ns: now,
        host: None,
        cob: None,
        generation: None,
        text: "this is a test of `cobctl notify`".to_owned(),
        next: String::new(),
    };
    let message = Message { title: notice.text.clone(), notices: vec![notice], dropped: 0, further: 0 };
    let mut exit = Exit::Yes;
    for receiver in &config.receivers {
        match send(&receiver.way, &message, now).await {
            Ok(()) => screen.line(&format!("{}: sent", receiver.name))?,
            Err(why) => {
                screen.problem("error", &format!("{}: {why}", receiver.name));
                exit = Exit::No;
            }
        }
    }
    Ok(exit)
}
