//! The queue of jobs, as administrators keep it: priorities, rules, drain.
//!
//! A rule belongs to the hub or to a tenant. In the queue, a tenant's rule has the id `TENANT/NAME`, and names of users
//! and clusters are whole: `TENANT/USER`, `TENANT/CLUSTER`.

use std::collections::BTreeSet;

use cob_hub_api::{
    Drain as DrainView, DrainRequest, Job, JobSelection, Name, Operation, Queue, Rule as RuleView, RuleAction,
    RuleContent,
};
use cob_jobs::{Action, Drain, JobId, Millis, NotDone, Priority, Refused, Rule, Selection, because, is_permitted};
use cob_permissions::{self as rights, Directory, Standing, UserId, may};

use super::book::Changes;
use super::error::HubError;
use super::look::{job_entity, standing};
use super::orders::{check_length, not_done};
use super::{Caller, Hub, is_known, now_ms, rights_name, user_text};

/// The longest reason, in characters.
const LONGEST_REASON: usize = 300;
/// The most rules of the hub, or of a tenant: each start of a job reads them.
const MOST_RULES: usize = 100;

impl Hub {
    /// The drain and the rules, and how many jobs run and wait, as far as the caller may see them.
    ///
    /// # Errors
    ///
    /// A job has no valid name.
    pub async fn queue(&self, caller: &Caller) -> Result<Queue, HubError> {
        let state = self.state.lock().await;
        let (mut running, mut waiting) = (0, 0);
        for job in state.queue.open_jobs() {
            let here = caller.tenant.as_ref().is_none_or(|tenant| job.spec.tenant == tenant.as_str());
            let entity = job_entity(&state, job)?;
            if here && may(&state.directory, &caller.subject, rights::Action::Read, &entity).is_allowed() {
                *(if job.status.is_pending() { &mut waiting } else { &mut running }) += 1;
            }
        }
        let tenant = caller.tenant.as_ref().map(Name::as_str);
        let is_super = standing(&state.directory, caller) == Some(Standing::SuperAdministrator);
        let is_visible = |rule: &&Rule| match &rule.tenant {
            None => is_super,
            Some(keeper) => tenant.is_none_or(|tenant| tenant == keeper),
        };
        Ok(Queue {
            drain: state.queue.drained().map(view_of_drain),
            running,
            waiting,
            rules: state.queue.rules().iter().filter(is_visible).map(view_of_rule).collect::<Result<_, _>>()?,
        })
    }

    /// Refuses new orders, for a reason. Jobs in the queue go on.
    ///
    /// # Errors
    ///
    /// The caller is no super administrator.
    pub async fn drain(&self, caller: &Caller, request: DrainRequest) -> Result<(), HubError> {
        check_reason(&request.reason)?;
        let by = user_text(&caller.subject.user);
        self.set_drain(caller, Some(Drain { reason: request.reason, by, since: Millis(now_ms()) })).await
    }

    /// Accepts orders again.
    ///
    /// # Errors
    ///
    /// The caller is no super administrator.
    pub async fn undrain(&self, caller: &Caller) -> Result<(), HubError> {
        self.set_drain(caller, None).await
    }

    async fn set_drain(&self, caller: &Caller, drain: Option<Drain>) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
        if !keeps_hub(&state.directory, caller) {
            return self.refused(caller, "only a super administrator drains the hub");
        }
        let reason = drain.as_ref().map(|drain| because(&drain.reason)).unwrap_or_default();
        self.note(caller, None, None, format!("allowed{reason}"))?;
        state.queue.drain(drain);
        let mut changes = Changes::default();
        changes.head(&state.queue)?;
        self.write(changes).await
    }

    /// Writes a rule of the hub, or of the tenant of the request.
    ///
    /// # Errors
    ///
    /// The caller does not keep these rules, or the rule is wrong.
    pub async fn set_rule(&self, caller: &Caller, name: &Name, content: RuleContent) -> Result<(), HubError> {
        check_reason(&content.reason)?;
        check_length(&content)?;
        let mut state = self.state.lock().await;
        self.keeps_rules(&state.directory, caller)?;
        let keeper = caller.tenant.as_ref();
        let id = rule_id(keeper, name);
        let is_beside = |rule: &&Rule| rule.id != id && rule.tenant.as_deref() == keeper.map(Name::as_str);
        if state.queue.rules().iter().filter(is_beside).count() >= MOST_RULES {
            return Err(HubError::Conflict(format!("there are {MOST_RULES} rules already; remove some first")));
        }
        let action = match content.action {
            RuleAction::Accept => Action::Accept,
            RuleAction::Pause => Action::Pause,
            RuleAction::Reject => Action::Reject,
            RuleAction::Continue => Action::Continue,
            RuleAction::RateLimit(0) => {
                return Err(HubError::Bad("a rate limit is at least 1; the action `pause` stops all".to_owned()));
            }
            RuleAction::RateLimit(most) => Action::RateLimit(usize::try_from(most).unwrap_or(usize::MAX)),
        };
        let rule = Rule {
            id: id.clone(),
            tenant: keeper.map(ToString::to_string),
            priority: content.priority,
            watermark: JobId(state.queue.next_id().0.saturating_sub(1)),
            jobs: selection(&state.directory, keeper, content.jobs)?,
            action,
            reason: content.reason,
        };
        self.note(caller, None, None, format!("allowed: {}{}", action_text(action), because(&rule.reason)))?;
        let mut changes = Changes::default();
        changes.rule(&id, Some(&rule))?;
        let effects = state.queue.set_rule(rule, Millis(now_ms()));
        changes.queue(&mut state.queue)?;
        self.settle(&mut state, changes, effects).await
    }

    /// Removes a rule of the hub, or of the tenant of the request.
    ///
    /// # Errors
    ///
    /// The caller does not keep these rules, or there is no such rule.
    pub async fn remove_rule(&self, caller: &Caller, name: &Name) -> Result<(), HubError> {
        let mut state = self.state.lock().await;
        self.keeps_rules(&state.directory, caller)?;
        let id = rule_id(caller.tenant.as_ref(), name);
        if !state.queue.rules().iter().any(|rule| rule.id == id) {
            return Err(HubError::Missing { what: "rule", name: id });
        }
        self.note(caller, None, None, "allowed")?;
        let effects = state.queue.remove_rule(&id, Millis(now_ms())).map_err(not_done)?;
        let mut changes = Changes::default();
        changes.rule(&id, None)?;
        changes.queue(&mut state.queue)?;
        self.settle(&mut state, changes, effects).await
    }

    /// Changes the priority of a job that has not started.
    ///
    /// # Errors
    ///
    /// The caller may not do this, or the job has started.
    pub async fn set_priority(&self, caller: &Caller, id: JobId, priority: i8) -> Result<Job, HubError> {
        {
            let mut state = self.state.lock().await;
            self.decide_job(&state, caller, rights::Action::Execute, id)?;
            self.check_priority(&state.directory, caller, priority)?;
            self.note(caller, None, Some(id), format!("allowed: priority {priority}"))?;
            let effects = state.queue.set_priority(id, Priority(priority), Millis(now_ms())).map_err(not_done)?;
            let mut changes = Changes::default();
            changes.queue(&mut state.queue)?;
            self.settle(&mut state, changes, effects).await?;
        }
        self.job(caller, id).await
    }

    /// Checks that the caller may give this priority. If each user could give the best priority, it would mean nothing.
    pub(super) fn check_priority(&self, directory: &Directory, caller: &Caller, priority: i8) -> Result<(), HubError> {
        let (who, best) = match standing(directory, caller) {
            Some(Standing::SuperAdministrator) => ("a super administrator", -20),
            Some(Standing::Administrator) => ("an administrator", -10),
            Some(Standing::User) | None => ("a user", 0),
        };
        if !is_permitted(Priority(priority)) {
            return Err(HubError::Bad(NotDone::Priority(Priority(priority)).to_string()));
        }
        if priority < best {
            return self.refused(caller, &format!("{who} gives the priorities {best} to 19, not {priority}"));
        }
        Ok(())
    }

    /// Checks that the caller keeps the rules of the hub, or of the tenant of the request.
    fn keeps_rules(&self, directory: &Directory, caller: &Caller) -> Result<(), HubError> {
        if let Some(tenant) = &caller.tenant
            && !directory.tenants.contains_key(&rights_name(tenant.as_str())?)
        {
            return Err(HubError::Missing { what: "tenant", name: tenant.to_string() });
        }
        let is_administrator = standing(directory, caller) == Some(Standing::Administrator);
        if keeps_hub(directory, caller) || (is_administrator && caller.subject.scope.is_none()) {
            return Ok(());
        }
        self.refused(caller, "only administrators keep rules of jobs")
    }

    /// Notes a refusal.
    fn refused<T>(&self, caller: &Caller, why: &str) -> Result<T, HubError> {
        self.note(caller, None, None, format!("refused: {why}"))?;
        Err(HubError::Forbidden(why.to_owned()))
    }
}

/// Whether the caller keeps the queue of the hub. The scope of a token has no right on it.
fn keeps_hub(directory: &Directory, caller: &Caller) -> bool {
    standing(directory, caller) == Some(Standing::SuperAdministrator) && caller.subject.scope.is_none()
}

/// A refused order in the words of its user.
pub(super) fn refusal(refused: &Refused) -> String {
    match refused {
        Refused::Drained(reason) => format!("the hub is drained and accepts no new orders{}", because(reason)),
        Refused::Rejected { rule, reason, .. } => format!("the rule {rule} rejects this order{}", because(reason)),
        Refused::Priority { .. } | Refused::Reference { .. } | Refused::Exhausted => refused.to_string(),
    }
}

fn check_reason(reason: &str) -> Result<(), HubError> {
    if reason.chars().count() > LONGEST_REASON || reason.chars().any(char::is_control) {
        return Err(HubError::Bad(format!("a reason is one line of at most {LONGEST_REASON} characters")));
    }
    Ok(())
}

fn rule_id(keeper: Option<&Name>, name: &Name) -> String {
    keeper.map_or_else(|| name.to_string(), |tenant| format!("{tenant}/{name}"))
}

fn action_text(action: Action) -> String {
    match action {
        Action::Accept => "accept".to_owned(),
        Action::Pause => "pause".to_owned(),
        Action::Reject => "reject".to_owned(),
        Action::Continue => "continue".to_owned(),
        Action::RateLimit(most) => format!("rate limit {most}"),
    }
}

/// The selection of the queue, with whole names. A name that no job can have is refused: the rule would have no effect.
fn selection(directory: &Directory, keeper: Option<&Name>, jobs: JobSelection) -> Result<Selection, HubError> {
    let JobSelection { ids, tenants, users, clusters, operations, providers, new_only } = jobs;
    if keeper.is_some() && !tenants.is_empty() {
        return Err(HubError::Bad(
            "`tenants` is for rules of the hub: a tenant's rule concerns its own jobs".to_owned(),
        ));
    }
    for tenant in &tenants {
        if !directory.tenants.contains_key(&rights_name(tenant.as_str())?) {
            return Err(HubError::Bad(format!("`tenants`: there is no tenant {tenant}")));
        }
    }
    known_operations("operations", &operations)?;
    Ok(Selection {
        jobs: ids.into_iter().map(JobId).collect(),
        tenants: tenants.iter().map(ToString::to_string).collect(),
        users: users.iter().map(|user| whole_user(directory, keeper, user)).collect::<Result<_, _>>()?,
        clusters: clusters.iter().map(|cluster| whole_cluster(keeper, cluster)).collect::<Result<_, _>>()?,
        kinds: operations,
        providers: providers.iter().map(ToString::to_string).collect(),
        new_only,
    })
}

/// `TENANT/USER`, or a super administrator.
fn whole_user(directory: &Directory, keeper: Option<&Name>, text: &str) -> Result<String, HubError> {
    let (tenant, name) = match (keeper, text.split_once('/')) {
        (Some(tenant), None) => (Some(rights_name(tenant.as_str())?), rights_name(text)?),
        (_, Some((tenant, name))) => (Some(rights_name(tenant)?), rights_name(name)?),
        (None, None) => (None, rights_name(text)?),
    };
    let user = UserId { tenant, name };
    let is_own = keeper.is_none_or(|keeper| user.tenant.as_ref().is_some_and(|t| t.as_str() == keeper.as_str()));
    if !is_own || !is_known(directory, &user) {
        let hint = if keeper.is_some() { "name a user of the tenant" } else { "name TENANT/USER" };
        return Err(HubError::Bad(format!("`users`: there is no user {text:?}: {hint}")));
    }
    Ok(user_text(&user))
}

/// `TENANT/CLUSTER`. The cluster need not exist yet.
fn whole_cluster(keeper: Option<&Name>, text: &str) -> Result<String, HubError> {
    let wrong = |why: String| HubError::Bad(format!("`clusters`: {text:?}: {why}"));
    let (tenant, name) = match (keeper, text.split_once('/')) {
        (Some(tenant), None) => (tenant.as_str(), text),
        (None, Some((tenant, name))) => (tenant, name),
        (Some(tenant), Some((other, name))) if tenant.as_str() == other => (other, name),
        (Some(_), Some(_)) => return Err(wrong("name a cluster of the tenant".to_owned())),
        (None, None) => return Err(wrong("name TENANT/CLUSTER".to_owned())),
    };
    let part = |text: &str| Name::new(text).map_err(|e| wrong(e.to_string()));
    Ok(super::book::queue_name(&part(tenant)?, &part(name)?))
}

fn view_of_drain(drain: &Drain) -> DrainView {
    DrainView { reason: drain.reason.clone(), by: drain.by.clone(), since_ms: drain.since.0 }
}

fn view_of_rule(rule: &Rule) -> Result<RuleView, HubError> {
    let name = |text: &str| Name::new(text).map_err(|e| HubError::Internal(e.to_string()));
    let names = |all: &BTreeSet<String>| all.iter().map(|text| name(text)).collect::<Result<_, _>>();
    let own = rule.id.rsplit('/').next().unwrap_or(&rule.id);
    Ok(RuleView {
        name: name(own)?,
        tenant: rule.tenant.as_deref().map(name).transpose()?,
        content: RuleContent {
            action: match rule.action {
                Action::Accept => RuleAction::Accept,
                Action::Pause => RuleAction::Pause,
                Action::Reject => RuleAction::Reject,
                Action::Continue => RuleAction::Continue,
                Action::RateLimit(most) => RuleAction::RateLimit(u32::try_from(most).unwrap_or(u32::MAX)),
            },
            priority: rule.priority,
            reason: rule.reason.clone(),
            jobs: JobSelection {
                ids: rule.jobs.jobs.iter().map(|id| id.0).collect(),
                tenants: names(&rule.jobs.tenants)?,
                users: rule.jobs.users.clone(),
                clusters: rule.jobs.clusters.clone(),
                operations: rule.jobs.kinds.clone(),
                providers: names(&rule.jobs.providers)?,
                new_only: rule.jobs.new_only,
            },
        },
    })
}

/// Whether each text is the name of an operation.
pub(super) fn known_operations<'a>(key: &str, names: impl IntoIterator<Item = &'a String>) -> Result<(), HubError> {
    match names.into_iter().find(|name| !Operation::NAMES.contains(&name.as_str())) {
        None => Ok(()),
        Some(unknown) => {
            let known = Operation::NAMES.join(", ");
            Err(HubError::Bad(format!("`{key}`: there is no operation {unknown:?}; there are {known}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).expect("a name")
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn directory() -> Directory {
        serde_json::from_value(serde_json::json!({
            "super_administrators": ["root"],
            "tenants": {"web": {"users": {"ann": {}}}, "db": {"users": {"dan": {}}}},
        }))
        .expect("a directory")
    }

    #[test]
    fn a_selection_of_a_tenant_has_whole_names() {
        let web = name("web");
        let jobs = JobSelection {
            ids: [7].into(),
            users: set(&["ann"]),
            clusters: set(&["shop", "web/blog"]),
            operations: set(&["delete"]),
            providers: [name("cloud")].into(),
            new_only: true,
            ..JobSelection::default()
        };
        let expected = Selection {
            jobs: [JobId(7)].into(),
            tenants: set(&[]),
            users: set(&["web/ann"]),
            clusters: set(&["web/shop", "web/blog"]),
            kinds: set(&["delete"]),
            providers: set(&["cloud"]),
            new_only: true,
        };
        assert_eq!(selection(&directory(), Some(&web), jobs).expect("valid"), expected);
    }

    #[test]
    fn a_selection_without_effect_is_refused_with_its_place() {
        let web = name("web");
        let of = |change: &dyn Fn(&mut JobSelection)| {
            let mut jobs = JobSelection::default();
            change(&mut jobs);
            jobs
        };
        let users = |names: &'static [&'static str]| of(&move |jobs| jobs.users = set(names));
        let clusters = |names: &'static [&'static str]| of(&move |jobs| jobs.clusters = set(names));
        let wrong = [
            (None, users(&["ann"]), "`users`: there is no user \"ann\": name TENANT/USER"),
            (Some(&web), users(&["db/dan"]), "`users`: there is no user \"db/dan\": name a user of the tenant"),
            (Some(&web), users(&["root"]), "`users`: there is no user \"root\": name a user of the tenant"),
            (None, clusters(&["shop"]), "`clusters`: \"shop\": name TENANT/CLUSTER"),
            (Some(&web), clusters(&["db/shop"]), "`clusters`: \"db/shop\": name a cluster of the tenant"),
            (None, of(&|jobs| jobs.tenants = [name("wbe")].into()), "`tenants`: there is no tenant wbe"),
            (Some(&web), of(&|jobs| jobs.tenants = [name("web")].into()), "`tenants` is for rules of the hub"),
            (
                None,
                of(&|jobs| jobs.operations = set(&["fly"])),
                "there is no operation \"fly\"; there are create, resize",
            ),
        ];
        for (keeper, jobs, told) in wrong {
            let error = selection(&directory(), keeper, jobs).expect_err(told).to_string();
            assert!(error.contains(told), "{error}");
        }
        let good =
            [(None, users(&["root", "web/ann"])), (None, clusters(&["web/shop"])), (Some(&web), users(&["web/ann"]))];
        for (keeper, jobs) in good {
            assert!(selection(&directory(), keeper, jobs.clone()).is_ok(), "{jobs:?}");
        }
    }

    #[test]
    fn refusals_name_the_rule_and_its_reason() {
        let (rule, reason) = ("web/freeze".to_owned(), "release week".to_owned());
        let rejected = Refused::Rejected { index: 0, rule, reason };
        assert_eq!(refusal(&rejected), "the rule web/freeze rejects this order: release week");
        assert_eq!(refusal(&Refused::Drained(String::new())), "the hub is drained and accepts no new orders");
    }
}
