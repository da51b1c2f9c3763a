//! Rules of administrators about jobs, and the drain of the queue.
//!
//! Rules are in an order: by priority, then watermark, then id. Of the hub's rules, the first that concerns a job and is
//! not *continue* applies to the job; of the rules of the job's tenant likewise. A job starts only if both rules permit
//! it, so a tenant can't weaken a rule of the hub. (Ganeti has one list, because it has no tenants.)

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::job::{JobId, Millis, Spec};

/// A rule of administrators.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// Its name: unique.
    pub id: String,
    /// The tenant that keeps the rule, which concerns jobs of this tenant only. Absent: a rule of the hub.
    pub tenant: Option<String>,
    /// The smaller number comes first.
    pub priority: u32,
    /// The last job that was submitted before the rule was made.
    pub watermark: JobId,
    /// The jobs that it concerns.
    pub jobs: Selection,
    /// What happens to these jobs.
    pub action: Action,
    /// Why the rule exists, for the users whose jobs it concerns; may be empty.
    pub reason: String,
}

/// Some of the jobs: a job has to match each set. An empty set matches each job.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    /// Numbers of jobs.
    pub jobs: BTreeSet<JobId>,
    /// Tenants.
    pub tenants: BTreeSet<String>,
    /// The users of the orders.
    pub users: BTreeSet<String>,
    /// Clusters.
    pub clusters: BTreeSet<String>,
    /// Kinds of work.
    pub kinds: BTreeSet<String>,
    /// Providers of machines.
    pub providers: BTreeSet<String>,
    /// Only jobs that are submitted after the rule was made.
    pub new_only: bool,
}

impl Selection {
    fn has<P, L>(&self, watermark: JobId, id: JobId, spec: &Spec<P, L>) -> bool {
        let in_set = |set: &BTreeSet<String>, value: Option<&String>| {
            set.is_empty() || value.is_some_and(|value| set.contains(value))
        };
        (self.jobs.is_empty() || self.jobs.contains(&id))
            && in_set(&self.tenants, Some(&spec.tenant))
            && in_set(&self.users, Some(&spec.user))
            && in_set(&self.clusters, spec.cluster.as_ref())
            && in_set(&self.kinds, Some(&spec.kind))
            && in_set(&self.providers, spec.provider.as_ref())
            && (!self.new_only || id > watermark)
    }
}

/// What a rule does. Jobs that have a process go on in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// The job may start; later rules do not matter.
    Accept,
    /// The job stays in the queue.
    Pause,
    /// A new job is refused; a job in the queue is canceled.
    Reject,
    /// The rule is switched off: the next rules decide.
    Continue,
    /// At most so many jobs to which this rule applies run at a time.
    RateLimit(usize),
}

/// The queue accepts no new jobs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Drain {
    /// Why, for users whose orders are refused; may be empty.
    pub reason: String,
    /// The administrator of the drain.
    pub by: String,
    /// When it began.
    pub since: Millis,
}

/// A reason as the end of a message; an empty reason adds nothing.
pub fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {reason}") }
}

/// Brings rules in their order.
pub(crate) fn sort(rules: &mut [Rule]) {
    rules.sort_by(|a, b| (a.priority, a.watermark, &a.id).cmp(&(b.priority, b.watermark, &b.id)));
}

/// The rules that apply to a job: at most one of the hub, and one of the job's tenant.
pub(crate) fn applying<'a, P, L>(
    rules: &'a [Rule],
    id: JobId,
    spec: &'a Spec<P, L>,
) -> impl Iterator<Item = &'a Rule> + use<'a, P, L> {
    [None, Some(&spec.tenant)].into_iter().filter_map(move |keeper| {
        let own = rules.iter().filter(|rule| rule.tenant.as_ref() == keeper && rule.action != Action::Continue);
        own.into_iter().find(|rule| rule.jobs.has(rule.watermark, id, spec))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_test::spec;

    fn rule(id: &str, tenant: Option<&str>, priority: u32, jobs: Selection, action: Action) -> Rule {
        let tenant = tenant.map(str::to_owned);
        Rule { id: id.to_owned(), tenant, priority, watermark: JobId(4), jobs, action, reason: String::new() }
    }

    fn set(name: &str) -> BTreeSet<String> {
        BTreeSet::from([name.to_owned()])
    }

    #[test]
    fn a_selection_matches_each_of_its_sets() {
        let mut spec = spec("create");
        spec.cluster = Some("t1/shop".to_owned());
        spec.provider = Some("cloud".to_owned());
        let all = Selection {
            jobs: BTreeSet::from([JobId(5)]),
            tenants: set("t1"),
            users: set("ada"),
            clusters: set("t1/shop"),
            kinds: set("create"),
            providers: set("cloud"),
            new_only: true,
        };
        let has = |selection: &Selection| selection.has(JobId(4), JobId(5), &spec);
        assert!(has(&Selection::default()) && has(&all));
        let others = [
            Selection { jobs: BTreeSet::from([JobId(6)]), ..all.clone() },
            Selection { tenants: set("t2"), ..all.clone() },
            Selection { users: set("bob"), ..all.clone() },
            Selection { clusters: set("t2/shop"), ..all.clone() },
            Selection { kinds: set("delete"), ..all.clone() },
            Selection { providers: set("metal"), ..all.clone() },
        ];
        assert_eq!(others.iter().map(has).collect::<Vec<_>>(), [false; 6]);
        assert!(!all.has(JobId(5), JobId(5), &spec), "the job is older than the rule");
        let named = Selection { clusters: set("t1/shop"), ..Selection::default() };
        spec.cluster = None;
        assert!(!named.has(JobId(4), JobId(5), &spec), "a job without a cluster");
    }

    #[test]
    fn the_first_rule_of_the_hub_and_the_first_of_the_tenant_apply() {
        let everything = Selection::default;
        let mut rules = vec![
            rule("late", None, 9, everything(), Action::Reject),
            rule("t1/hold", Some("t1"), 5, everything(), Action::Pause),
            rule("t2/hold", Some("t2"), 0, everything(), Action::Pause),
            rule("off", None, 0, everything(), Action::Continue),
            rule("b", None, 3, everything(), Action::Accept),
            rule("a", None, 3, everything(), Action::RateLimit(2)),
            rule("deletions", None, 1, Selection { kinds: set("delete"), ..everything() }, Action::Pause),
            rule("t1/open", Some("t1"), 1, Selection { kinds: set("delete"), ..everything() }, Action::Accept),
        ];
        sort(&mut rules);
        let order: Vec<&str> = rules.iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(order, ["off", "t2/hold", "deletions", "t1/open", "a", "b", "t1/hold", "late"]);
        let apply = |kind: &str, tenant: &str| -> Vec<String> {
            let mut spec = spec(kind);
            tenant.clone_into(&mut spec.tenant);
            applying(&rules, JobId(5), &spec).map(|rule| rule.id.clone()).collect()
        };
        assert_eq!(apply("create", "t1"), ["a", "t1/hold"]);
        assert_eq!(
            apply("delete", "t1"),
            ["deletions", "t1/open"],
            "an acceptance of the tenant lifts no pause of the hub"
        );
        assert_eq!(apply("delete", "t2"), ["deletions", "t2/hold"]);
        assert_eq!(apply("create", "t3"), ["a"]);
    }
}
