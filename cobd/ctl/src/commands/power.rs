//! The power of a host, switched off by the fence devices of a Pacemaker cluster, through a surviving host of the cluster.
//!
//! The cluster has to know it: it would fence the host again, or wait for it. So the order goes to the cluster
//! (`stonith_admin`), and the history of the cluster says whether it was done: the order has a mark of its own.

use std::time::Duration;

use cob_types::command_run::{RunEnd, RunEvent, RunExit, RunOrder};
use cob_types::status::ClusterStatus;
use cob_types::{Command, HostName};
use tokio::time::{Instant, sleep};

use super::Context;
use super::adhoc::new_run;
use crate::failure::Failure;
use crate::screen::Screen;
use crate::targets::Target;
use crate::words::list;

/// The kind of change objects that have fence devices.
const KIND: &str = "ha-set";
const PROGRAM: &str = "stonith_admin";
/// The longest time of a question.
const QUESTION: Duration = Duration::from_secs(30);
/// The longest time until the device has switched the host off.
const SWITCH: Duration = Duration::from_secs(120);
/// The longest time until the history has the end.
const HISTORY: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(500);
/// The most bytes of an output that are read.
const MOST: usize = 4 << 20;

/// Has a fence device switch the host off. Returns after the cluster has confirmed it.
pub(super) async fn switch_off(
    context: &Context,
    screen: &mut Screen,
    host: &HostName,
    cluster: &ClusterStatus,
) -> Result<(), Failure> {
    let has_set = |name: &HostName| {
        let found = cluster.hosts.iter().find(|h| h.reachable && h.name == *name);
        found.is_some_and(|h| h.cobs.iter().any(|cob| cob.kind == KIND))
    };
    let all = &context.targets.all;
    let ways: Vec<&Target> = all.iter().filter(|t| t.name.as_ref().is_some_and(|n| n != host && has_set(n))).collect();
    if ways.is_empty() {
        return Err(Failure::refused(format!("no reachable host has an ha-set, so no cluster can switch {host} off"))
            .hint(format!(
                "name the hosts with --depot; or switch it off by hand, then `cobctl fence {host}` without --power-off"
            )));
    }
    let mut reasons = Vec::new();
    for way in ways {
        let name = way.stand_in();
        match devices(context, way, host).await {
            Ok(devices) if devices.is_empty() => {
                reasons.push(format!("{name}: its cluster has no fence device for {host}"));
            }
            Ok(devices) => {
                screen.say(&format!("{name} has the cluster switch {host} off, by {}", list(&devices, 4)));
                return confirmed(context, way, host).await.map(|told| screen.say(&told));
            }
            Err(why) => reasons.push(format!("{name}: {why}")),
        }
    }
    let hint = format!(
        "add a device for {host} to `fence` of the ha-set; or switch it off by hand, then `cobctl fence {host}` without \
         --power-off"
    );
    Err(Failure::refused(format!("{host} was not switched off: {}", reasons.join("; "))).hint(hint))
}

/// The fence devices for a host.
async fn devices(context: &Context, way: &Target, host: &HostName) -> Result<Vec<String>, String> {
    let words = ["--list", host.as_str(), "--output-as=xml"];
    let ran = ask(context, way, &words, QUESTION).await?;
    // Without a device the program fails, and its answer says so.
    read_devices(&ran.out).ok_or_else(|| ran.complaint())
}

/// Orders it, and waits for the history.
async fn confirmed(context: &Context, way: &Target, host: &HostName) -> Result<String, Failure> {
    let failed = |why: String| {
        Failure::refused(format!("{host} was not switched off: {why}"))
            .hint(format!("`{PROGRAM} --history {host} --verbose` on {} has the attempts", way.stand_in()))
    };
    let mark = format!("cob-{}", new_run().map_err(&failed)?);
    let seconds = SWITCH.as_secs().to_string();
    let words = ["--fence", host.as_str(), "--tag", &mark, "--timeout", &seconds];
    let ordered = ask(context, way, &words, SWITCH + QUESTION).await.map_err(&failed)?;
    let limit = Instant::now() + HISTORY;
    loop {
        let words = ["--history", host.as_str(), "--verbose", "--output-as=xml"];
        let ran = ask(context, way, &words, QUESTION).await.map_err(&failed)?;
        match read_event(&ran.out, &mark, host.as_str()) {
            Some(Event::Done { by, at }) => {
                return Ok(format!("{host} is off: the cluster confirms it ({by}, {at})"));
            }
            Some(Event::Failed(why)) => return Err(failed(why)),
            Some(Event::Pending) | None if Instant::now() < limit => sleep(PAUSE).await,
            Some(Event::Pending) => return Err(failed("its fencing is still under way".to_owned())),
            None if ordered.is_success() => {
                return Err(failed("the history of the cluster does not have the order".to_owned()));
            }
            None => return Err(failed(ordered.complaint())),
        }
        if !ordered.is_success() && !ran.out.contains(&mark) {
            return Err(failed(ordered.complaint()));
        }
    }
}

/// The end of a program on a host.
struct Ran {
    out: String,
    err: String,
    end: RunEnd,
}

impl Ran {
    fn is_success(&self) -> bool {
        self.end.is_success()
    }

    fn complaint(&self) -> String {
        let last = self.err.lines().map(str::trim).rfind(|line| !line.is_empty());
        match (&self.end.exit, last) {
            (RunExit::NotStarted(_), _) | (_, None) => format!("{PROGRAM}: {}", self.end),
            (_, Some(line)) => format!("{PROGRAM}: {line}"),
        }
    }
}

/// Runs the program on a host: the order and its author are in the host's history.
async fn ask(context: &Context, way: &Target, words: &[&str], limit: Duration) -> Result<Ran, String> {
    let order = RunOrder {
        command: Command::Argv([&[PROGRAM], words].concat().iter().map(|word| (*word).to_owned()).collect()),
        run: Some(new_run()?),
        user: None,
        cwd: None,
        env: Default::default(),
        timeout_ms: u64::try_from(limit.as_millis()).ok(),
        who: context.client.who(),
    };
    let mut events = context.client.run(&way.endpoint, &order).await.map_err(|error| error.in_a_line())?;
    let (mut out, mut err) = (String::new(), String::new());
    loop {
        match events.next().await.map_err(|error| error.in_a_line())? {
            Some(RunEvent::Begun { .. }) => {}
            Some(RunEvent::Out(text)) => out.push_str(&text),
            Some(RunEvent::Err(text)) => err.push_str(&text),
            Some(RunEvent::Ended(end)) => return Ok(Ran { out, err, end }),
            None => return Err("the connection broke".to_owned()),
        }
        if out.len() + err.len() > MOST {
            return Err("the host sends more than the program may print".to_owned());
        }
    }
}

/// The names of fence devices in an answer. `None`: it is no answer.
fn read_devices(xml: &str) -> Option<Vec<String>> {
    let document = roxmltree::Document::parse(xml).ok()?;
    let answer = document.descendants().find(|node| node.has_tag_name("list"));
    let items = answer.into_iter().flat_map(|list| list.children()).filter(|node| node.has_tag_name("item"));
    Some(items.filter_map(|item| item.text()).map(|text| text.trim().to_owned()).collect())
}

/// What the history says about an order.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Done { by: String, at: String },
    Pending,
    Failed(String),
}

/// The event of an order in a history.
fn read_event(xml: &str, mark: &str, host: &str) -> Option<Event> {
    let document = roxmltree::Document::parse(xml).ok()?;
    let event = document.descendants().find(|node| {
        let is = |key: &str, value: &str| node.attribute(key) == Some(value);
        let client = node.attribute("client").unwrap_or_default();
        node.has_tag_name("fence_event") && is("target", host) && is("action", "off") && client.contains(mark)
    })?;
    let text = |key: &str| event.attribute(key).unwrap_or_default().to_owned();
    Some(match event.attribute("status") {
        Some("success") => Event::Done { by: text("delegate"), at: text("completed") },
        Some("failed") => Event::Failed(match event.attribute("exit-reason") {
            Some(why) => format!("the fence device failed: {why}"),
            None => "the fence device failed".to_owned(),
        }),
        Some(_) | None => Event::Pending,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_the_items_of_an_answer() {
        let answer =
            |list: &str| format!("<pacemaker-result>{list}<status code=\"0\" message=\"OK\"/></pacemaker-result>");
        let some = answer("<list name=\"d\" count=\"2\"><item name=\"device\">power</item><item>\n ipmi</item></list>");
        assert_eq!(read_devices(&some), Some(vec!["power".to_owned(), "ipmi".to_owned()]));
        assert_eq!(read_devices(&answer("")), Some(Vec::new()));
        assert_eq!(read_devices("stonith_admin: no such program"), None);
    }

    #[test]
    fn only_the_event_of_the_order_counts() {
        let event = |status: &str, client: &str, more: &str| {
            format!(
                "<pacemaker-result><list name=\"f\" count=\"2\"><fence_event status=\"success\" action=\"off\" \
                 target=\"h2\" client=\"pacemaker-controld.7\" origin=\"h1\" completed=\"earlier\"/><fence_event \
                 status=\"{status}\" action=\"off\" target=\"h2\" client=\"{client}\" origin=\"h1\" {more}/></list>\
                 </pacemaker-result>"
            )
        };
        let done = event("success", "stonith_admin.cob-1.9", "delegate=\"h3\" completed=\"now\"");
        assert_eq!(read_event(&done, "cob-1", "h2"), Some(Event::Done { by: "h3".to_owned(), at: "now".to_owned() }));
        assert_eq!(read_event(&done, "cob-2", "h2"), None);
        assert_eq!(read_event(&done, "cob-1", "h3"), None);
        assert_eq!(read_event(&event("pending", "cob-1", ""), "cob-1", "h2"), Some(Event::Pending));
        let failed = read_event(&event("failed", "cob-1", "exit-reason=\"no plug\""), "cob-1", "h2");
        assert_eq!(failed, Some(Event::Failed("the fence device failed: no plug".to_owned())));
    }
}
