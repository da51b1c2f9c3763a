//! An outside policy: a program or service of the operator that decides in addition to the policy of the hub, or in its
//! place.
//!
//! [`consult`] makes the question, the caller sends it and receives bytes, and [`Question::settle`] makes the decision.
//! A missing, late or invalid answer is a refusal. An outside policy cannot open the wall between tenants, widen the
//! scope of a token, or let a tenant write the shared catalogue: [`consult`] refuses these without a question.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::decide::{Decision, Person, Rule, Standing, Subject, Why, may};
use crate::directory::Directory;
use crate::entity::{Action, Actions, Entity, Name, UserId};

/// The role of the outside policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Both policies have to allow an action.
    Restrict,
    /// The outside policy alone decides.
    Replace,
}

/// The version of questions and replies.
pub const VERSION: u32 = 1;

/// A question to an outside policy, sent as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Question {
    /// [`VERSION`].
    pub version: u32,
    /// The number of the question; the reply repeats it.
    pub id: u64,
    /// The user.
    pub user: UserId,
    /// The rank of the user.
    pub standing: Standing,
    /// The groups of the user.
    pub groups: BTreeSet<Name>,
    /// The action.
    pub action: Action,
    /// The entity.
    pub entity: Entity,
    /// Whether the policy of the hub allows the action.
    pub allowed_by_hub: bool,
}

/// The reply of an outside policy, received as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// [`VERSION`].
    pub version: u32,
    /// The number of the question.
    pub id: u64,
    /// Whether the user may do the action.
    pub allowed: bool,
    /// The reason of a refusal: a line of text. The user sees it if the entity is not hidden.
    #[serde(default)]
    pub reason: String,
    /// Whether a refusal hides the entity from the user. Missing: hidden, if the policy of the hub refuses, too.
    #[serde(default)]
    pub hidden: Option<bool>,
}

/// The first half of a decision with an outside policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Consultation {
    /// The decision does not depend on the outside policy.
    Decided(Decision),
    /// The outside policy has to be asked.
    Ask(Box<Question>),
}

/// Begins a decision with an outside policy. The caller chooses a new number for each question.
pub fn consult(
    directory: &Directory,
    role: Role,
    subject: &Subject,
    action: Action,
    entity: &Entity,
    id: u64,
) -> Consultation {
    let built_in = may(directory, subject, action, entity);
    let person = Person::find(directory, &subject.user).filter(|person| person.reaches(entity));
    let Some(person) = person.filter(|_| role == Role::Replace || built_in.is_allowed()) else {
        return Consultation::Decided(built_in);
    };
    let scope = subject.scope.as_ref().map_or(Actions::ALL, |scope| scope.actions(entity));
    let foreign_write = entity.is_shared() && action == Action::Write && person.tenant.is_some();
    if foreign_write || !(scope & entity.kind.actions()).has(action) {
        return Consultation::Decided(built_in);
    }
    let groups = person.tenant.and_then(|(_, tenant)| tenant.users.get(person.name)).map(|user| user.groups.clone());
    Consultation::Ask(Box::new(Question {
        version: VERSION,
        id,
        user: subject.user.clone(),
        standing: person.standing,
        groups: groups.unwrap_or_default(),
        action,
        entity: entity.clone(),
        allowed_by_hub: built_in.is_allowed(),
    }))
}

impl Question {
    /// The longest accepted reply, in bytes.
    pub const LONGEST_REPLY: usize = 16 << 10;
    /// The longest accepted reason, in bytes.
    const LONGEST_REASON: usize = 1000;

    /// Ends the decision with the bytes of the reply, or with the fault that prevented a reply. A failure hides the
    /// entity, because the outside policy might have done so.
    pub fn settle(&self, reply: Result<&[u8], String>) -> Decision {
        match reply.and_then(|bytes| self.parse(bytes)) {
            Ok(reply) if reply.allowed => Decision::Allowed(Rule::Outside),
            Ok(reply) => {
                let hidden = reply.hidden.unwrap_or(!self.allowed_by_hub);
                Decision::Refused { why: Why::Outside(reply.reason), hidden }
            }
            Err(fault) => Decision::Refused { why: Why::OutsideFailed(fault), hidden: true },
        }
    }

    fn parse(&self, bytes: &[u8]) -> Result<Reply, String> {
        if bytes.len() > Self::LONGEST_REPLY {
            return Err(format!("the reply is longer than {} bytes", Self::LONGEST_REPLY));
        }
        let reply: Reply = serde_json::from_slice(bytes).map_err(|fault| format!("the reply is invalid: {fault}"))?;
        if reply.version != VERSION {
            return Err(format!("the reply has version {}, not {VERSION}", reply.version));
        }
        if reply.id != self.id {
            return Err(format!("the reply is for question {}, not {}", reply.id, self.id));
        }
        if reply.reason.len() > Self::LONGEST_REASON || reply.reason.contains(char::is_control) {
            return Err("the reason is longer than a line".to_owned());
        }
        Ok(reply)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Kind, Names, Scope, ScopeRule, Tenant, User};

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn directory() -> Directory {
        let users = ["bob", "carl"].map(|user| (name(user), User::default())).into();
        let tenant = Tenant { users, ..Tenant::default() };
        Directory { tenants: [(name("a"), tenant)].into(), ..Directory::default() }
    }

    fn subject(user: &str) -> Subject {
        Subject { user: UserId { tenant: Some(name("a")), name: name(user) }, scope: None }
    }

    fn shop() -> Entity {
        Entity::of_tenant(&name("a"), Kind::Cluster, &name("shop")).owned_by(&name("bob"))
    }

    fn question(role: Role, user: &str) -> Question {
        match consult(&directory(), role, &subject(user), Action::Write, &shop(), 7) {
            Consultation::Ask(question) => *question,
            Consultation::Decided(decision) => panic!("{decision:?}"),
        }
    }

    #[test]
    fn a_restriction_is_asked_only_about_allowed_actions() {
        assert!(question(Role::Restrict, "bob").allowed_by_hub);
        let decided = consult(&directory(), Role::Restrict, &subject("carl"), Action::Write, &shop(), 7);
        assert_eq!(decided, Consultation::Decided(Decision::Refused { why: Why::NoRight, hidden: true }));
        assert!(!question(Role::Replace, "carl").allowed_by_hub);
    }

    #[test]
    fn the_walls_stand_without_a_question() {
        let rule = ScopeRule { actions: Actions::READ, kind: Kind::Cluster, names: Names::All };
        let token = Subject { scope: Some(Scope(vec![rule])), ..subject("carl") };
        let foreign = Entity { tenant: Some(name("b")), ..shop() };
        let shared = Entity::of_hub(Kind::Template, &name("web"));
        let audit = Entity::of_tenant(&name("a"), Kind::Audit, &name("log"));
        let cases = [
            (subject("zoe"), shop()),
            (subject("bob"), foreign),
            (token, shop()),
            (subject("bob"), shared),
            (subject("bob"), audit),
        ];
        for (subject, entity) in cases {
            let consultation = consult(&directory(), Role::Replace, &subject, Action::Write, &entity, 7);
            let Consultation::Decided(decision) = consultation else { panic!("{subject:?} on {entity}") };
            assert!(!decision.is_allowed());
        }
    }

    #[test]
    fn a_valid_reply_decides() {
        let allowed = br#"{"version":1,"id":7,"allowed":true}"#;
        assert_eq!(question(Role::Replace, "carl").settle(Ok(allowed)), Decision::Allowed(Rule::Outside));
        let refused = br#"{"version":1,"id":7,"allowed":false,"reason":"at night"}"#;
        let refusal = |hidden| Decision::Refused { why: Why::Outside("at night".to_owned()), hidden };
        assert_eq!(question(Role::Replace, "carl").settle(Ok(refused)), refusal(true));
        assert_eq!(question(Role::Restrict, "bob").settle(Ok(refused)), refusal(false));
    }

    #[test]
    fn a_hostile_reply_is_a_refusal() {
        let long = format!(r#"{{"version":1,"id":7,"allowed":true,"reason":"{}"}}"#, "a".repeat(2000));
        let huge = format!(r#"{{"version":1,"id":7,"allowed":true}}{}"#, " ".repeat(Question::LONGEST_REPLY));
        let deep = "[".repeat(10_000);
        let replies = [
            "",
            "true",
            "{}",
            r#"{"version":1,"id":8,"allowed":true}"#,
            r#"{"version":2,"id":7,"allowed":true}"#,
            r#"{"version":1,"id":7,"allowed":"true"}"#,
            r#"{"version":1,"id":7,"allowed":1}"#,
            r#"{"version":1,"id":7,"allowed":false,"allowed":true}"#,
            r#"{"version":1,"id":7,"allowed":true,"more":1}"#,
            r#"{"version":1,"id":7,"allowed":true} {}"#,
            r#"{"version":1,"id":7,"allowed":true,"reason":"a\nb"}"#,
            r#"{"version":1,"id":7,"allowed":true"#,
            &long,
            &huge,
            &deep,
        ];
        let question = question(Role::Restrict, "bob");
        for reply in replies {
            let decision = question.settle(Ok(reply.as_bytes()));
            assert!(matches!(decision, Decision::Refused { why: Why::OutsideFailed(_), hidden: true }), "{reply}");
        }
        let late = Err("no reply within 2 s".to_owned());
        assert!(question.settle(late).is_hidden());
    }

    proptest! {
        #[test]
        fn an_altered_reply_never_allows_another_question(at in 0..36_usize, byte in any::<u8>()) {
            let mut reply = br#"{"version":1,"id":7,"allowed":false}"#.to_vec();
            reply[at] = byte;
            prop_assert!(!question(Role::Restrict, "bob").settle(Ok(&reply)).is_allowed());
        }

        #[test]
        fn noise_never_allows(reply in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(!question(Role::Restrict, "bob").settle(Ok(&reply)).is_allowed());
        }
    }
}
