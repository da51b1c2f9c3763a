//! Maintenance windows and schedules: each host has the nearest of the model, from the host, its clusters, or the model.

use std::collections::BTreeMap;

use cob_types::HostName;
use cob_types::maintenance::{MAX_WINDOWS, Offset, Schedule, Timetable, Window};
use cob_types::schedule::Times;

use super::Report;
use super::clusters::Clusters;
use super::hosts::Hosts;
use crate::diagnostic::Diagnostic;
use crate::model::{MaintenanceEntry, Mark, Marked, ScheduleEntry, Sections};

/// The windows and the schedule of an entry of the model.
#[derive(Debug, Default, Clone)]
struct Given {
    /// An empty list: any time.
    windows: Option<Vec<Window>>,
    schedule: Schedule,
}

impl Given {
    fn read(maintenance: Option<&MaintenanceEntry>, schedule: Option<&ScheduleEntry>, report: &mut Report<'_>) -> Self {
        let windows = maintenance.and_then(|entry| windows(entry, report));
        let mut line = |text: Option<&Marked<String>>| times(text?, report);
        let schedule =
            schedule.map(|entry| Schedule { check: line(entry.check.as_ref()), switch: line(entry.switch.as_ref()) });
        Self { windows, schedule: schedule.unwrap_or_default() }
    }

    /// Fills missing parts from a wider entry.
    fn or(self, wider: &Self) -> Self {
        let Schedule { check, switch } = self.schedule;
        Self {
            windows: self.windows.or_else(|| wider.windows.clone()),
            schedule: Schedule {
                check: check.or_else(|| wider.schedule.check.clone()),
                switch: switch.or_else(|| wider.schedule.switch.clone()),
            },
        }
    }
}

/// The timetable of all hosts.
pub(super) fn read(sections: &Sections, hosts: &Hosts, clusters: &Clusters, report: &mut Report<'_>) -> Timetable {
    let all = Given::read(sections.maintenance.as_ref(), sections.schedule.as_ref(), report);
    let of_clusters = of_clusters(sections, clusters, report);
    let own = sections.hosts.iter().map(|(name, entry)| {
        (name.value.as_str(), Given::read(entry.maintenance.as_ref(), entry.schedule.as_ref(), report))
    });
    let mut own: BTreeMap<&str, Given> = own.collect();
    let mut timetable = Timetable::default();
    for host in hosts.0.keys() {
        let mut given = own.remove(host.as_str()).unwrap_or_default();
        for cluster in of_clusters.get(host).into_iter().flatten() {
            let said = |from: &OfCluster<'_>| from.given.windows.clone();
            let first = of_clusters.get(host).into_iter().flatten().find(|other| said(other).is_some());
            if let Some(first) = first
                .filter(|first| given.windows.is_none() && said(cluster).is_some_and(|own| Some(own) != said(first)))
            {
                differ(host, first, cluster, report);
            }
        }
        for cluster in of_clusters.get(host).into_iter().flatten() {
            given = given.or(&cluster.given);
        }
        let Given { windows, schedule } = given.or(&all);
        if let Some(windows) = windows.filter(|windows| !windows.is_empty()) {
            timetable.windows.insert(host.clone(), windows);
        }
        if !schedule.is_empty() {
            timetable.schedules.insert(host.clone(), schedule);
        }
    }
    timetable
}

/// The windows and the schedule of a cluster.
#[derive(Debug, Clone)]
struct OfCluster<'a> {
    name: &'a str,
    mark: Mark,
    given: Given,
}

/// The clusters of each host with windows or a schedule.
fn of_clusters<'a>(
    sections: &'a Sections,
    clusters: &Clusters,
    report: &mut Report<'_>,
) -> BTreeMap<HostName, Vec<OfCluster<'a>>> {
    let mut found: BTreeMap<HostName, Vec<OfCluster<'a>>> = BTreeMap::new();
    for (name, entry) in sections.clusters.iter() {
        if entry.maintenance.is_none() && entry.schedule.is_none() {
            continue;
        }
        let given = Given::read(entry.maintenance.as_ref(), entry.schedule.as_ref(), report);
        let of = OfCluster { name: &name.value, mark: name.mark, given };
        let cluster = clusters.0.iter().find(|cluster| cluster.name == name.value);
        for host in cluster.into_iter().flat_map(|cluster| cluster.nodes.keys()) {
            found.entry(host.clone()).or_default().push(of.clone());
        }
    }
    found
}

/// Two clusters of a host have different windows.
fn differ(host: &HostName, first: &OfCluster<'_>, second: &OfCluster<'_>, report: &mut Report<'_>) {
    let what = format!(
        "{host} is in the clusters `{}` and `{}`, which have different maintenance windows",
        first.name, second.name
    );
    let fault = Diagnostic::error("different-windows", what)
        .help(format!("give the host windows of its own: `hosts: {{{host}: {{maintenance: {{window: …}}}}}}`"));
    report.push(second.mark, fault.note(Some(report.place(first.mark)), "the other cluster is here"));
}

/// The windows of an entry; `None` if a window is wrong, which is reported.
fn windows(entry: &MaintenanceEntry, report: &mut Report<'_>) -> Option<Vec<Window>> {
    let zone = match &entry.zone {
        None => Some(Offset::default()),
        Some(zone) => {
            let offset: Result<Offset, String> = zone.value.parse();
            offset.map_err(|why| report.push(zone.mark, Diagnostic::error("bad-window", why))).ok()
        }
    };
    let texts = &entry.window.as_ref()?.0;
    if let Some(many) = texts.get(MAX_WINDOWS) {
        let what = format!("a host has at most {MAX_WINDOWS} maintenance windows");
        let help = "join windows with days: \"Mon-Fri 02:00-04:00\"";
        report.push(many.mark, Diagnostic::error("bad-window", what).help(help));
        return None;
    }
    let mut read = |text: &Marked<String>| {
        let window = Window::parse(&text.value, zone?);
        window
            .map_err(|why| report.push(text.mark, Diagnostic::error("bad-window", format!("{:?}: {why}", text.value))))
            .ok()
    };
    let read: Vec<Option<Window>> = texts.iter().map(&mut read).collect();
    read.into_iter().collect()
}

/// A line of a schedule as written; `None` if it is wrong, which is reported.
fn times(text: &Marked<String>, report: &mut Report<'_>) -> Option<String> {
    let why = match Times::parse(&text.value) {
        Ok(times) if times.next_after(0).is_some() => return Some(text.value.clone()),
        Ok(_) => "no day of the calendar fits".to_owned(),
        Err(why) => why,
    };
    let fault = Diagnostic::error("bad-schedule", format!("the schedule {:?}: {why}", text.value))
        .help("write the five fields of cron, in UTC: \"0 3 * * *\" is each day at 03:00, \"0 2 * * 6\" is each Saturday at 02:00");
    report.push(text.mark, fault);
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use cob_types::maintenance::in_words;

    use crate::diagnostic::render;
    use crate::expand::{Expansion, expand};
    use crate::model::Model;

    fn of(text: &str) -> Expansion {
        let model = format!("security: loopback-only\nx-second: line\n{text}");
        expand(Model::of_text("model.yaml", &model), &BTreeSet::new())
    }

    /// The windows of each host that has any.
    fn windows(text: &str) -> Vec<String> {
        let expansion = of(text);
        let told = render(&expansion.diagnostics, &expansion.sources, false);
        let draft = expansion.draft.unwrap_or_else(|| panic!("{told}"));
        draft.timetable.windows.iter().map(|(host, windows)| format!("{host} {}", in_words(windows))).collect()
    }

    #[test]
    fn the_nearest_windows_count() {
        let found = windows(
            r#"
maintenance: {window: "Sat 02:00-04:00"}
hosts:
  all: {}
  any: {maintenance: {window: []}}
  own: {maintenance: {window: ["Mon-Fri 22:00-02:00", "Sun 01:00-02:00 UTC"], zone: "+02:00"}}
  web: {labels: {in: web}}
  web-own: {labels: {in: web}, maintenance: {window: daily 01:00-02:00}}
services: {s: {cobs: {x: {kind: noop}}}}
clusters: {web: {services: [s], nodes: [{label: in=web}], maintenance: {window: "Sun 02:00-04:00"}}}
"#,
        );
        assert_eq!(
            found,
            [
                "all Sat 02:00-04:00 UTC",
                "own Mon-Fri 22:00-02:00 +02:00 and Sun 01:00-02:00 UTC",
                "web Sun 02:00-04:00 UTC",
                "web-own daily 01:00-02:00 UTC",
            ]
        );
        assert_eq!(windows("hosts: {a: {}}"), Vec::<String>::new());
    }

    #[test]
    fn schedules_are_joined_line_by_line() {
        let expansion = of(
            "schedule: {check: \"0 3 * * *\", switch: \"@weekly\"}\nhosts: {a: {schedule: {check: \"@hourly\"}}, b: {}}\n",
        );
        let draft = expansion.draft.expect("a draft");
        let of = |host: &str| {
            let schedule = draft.timetable.schedules.get(host).expect("a schedule");
            (schedule.check.clone().unwrap_or_default(), schedule.switch.clone().unwrap_or_default())
        };
        assert_eq!(of("a"), ("@hourly".to_owned(), "@weekly".to_owned()));
        assert_eq!(of("b"), ("0 3 * * *".to_owned(), "@weekly".to_owned()));
    }

    #[test]
    fn a_wrong_window_or_schedule_is_refused_with_place_and_proposal() {
        let cases: [(&str, &[&str]); 9] = [
            ("maintenance: {window: Sam 02:00-04:00}", &["model.yaml:3:23", "is no day: write Mon"]),
            ("maintenance: {window: [Sat 02:00-04:00, \"2-4\"]}", &["model.yaml:3:41", "it is no window: write days"]),
            ("maintenance: {window: \"02:00-04:00\"}", &["write \"daily 02:00-04:00\""]),
            (
                "maintenance: {window: Sat 02:00-04:00, zone: Europe/Berlin}",
                &["model.yaml:3:46", "no daylight saving time"],
            ),
            ("maintenance: {zone: UTC}", &["lacks `window`"]),
            ("maintenance: {windows: Sat 02:00-04:00}", &["windows", "did you mean `window`"]),
            ("schedule: {check: \"99 * * * *\"}", &["model.yaml:3:19", "is not from 0 to 59", "each day at 03:00"]),
            ("schedule: {switch: \"@reboot\"}", &["it names no time"]),
            ("schedule: {switch: \"0 0 30 2 *\"}", &["no day of the calendar fits"]),
        ];
        for (text, words) in cases {
            let expansion = of(&format!("{text}\nhosts: {{a: {{}}}}\n"));
            assert!(expansion.draft.is_none(), "{text}");
            let told = render(&expansion.diagnostics, &expansion.sources, false);
            words.iter().for_each(|word| assert!(told.contains(word), "{word:?} is not in {told}"));
        }
        let expansion = of(r#"
hosts: {a: {}}
services: {s: {cobs: {x: {kind: noop}}}, t: {cobs: {x: {kind: noop}}}}
clusters:
  one: {services: [s], nodes: [a], maintenance: {window: Sat 02:00-04:00}}
  two: {services: [t], nodes: [a], maintenance: {window: Sun 02:00-04:00}}
"#);
        let told = render(&expansion.diagnostics, &expansion.sources, false);
        let words = "a is in the clusters `one` and `two`, which have different maintenance windows";
        assert!(expansion.draft.is_none() && told.contains(words), "{told}");
    }
}
