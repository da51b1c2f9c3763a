//! Permissions of a hub: which user may do which action on which entity, and how many machines, clusters and jobs a
//! tenant may have.
//!
//! [`may`] is the only decision. Its arguments are plain data: the [`Directory`] of tenants, users, groups and grants, the
//! [`Subject`] of a request, an [`Action`] and an [`Entity`]. There is no clock, no file and no state: the caller logs a
//! user in, takes the facts of the entity from its store, and writes the decision to the audit.
//!
//! # Actions
//!
//! | kind | read | write | execute | grant |
//! | --- | --- | --- | --- | --- |
//! | provider, hardware type, image type, service | see it, without secrets | create, change, delete | choose it for a cluster in place of the template's choice | pass rights on |
//! | template | see it | create, change, delete | create a cluster of it; sync a cluster to it | pass rights on |
//! | cluster | see it, its plans and its history | change configuration, size, services, version or lease; roll back; delete | start, stop, restart, check again; nothing that changes the model | pass rights on |
//! | machine | see it | replace, delete, change | start, stop, restart | pass rights on |
//! | job | see its state and log | archive, delete | cancel, pause, resume, change the priority | pass rights on |
//! | user | see name, rank, groups | create, remove, change groups and quota; take back its grants | change credentials, end sessions, manage API tokens | - |
//! | group | see name and members | create, remove, change members; take back its grants | - | - |
//! | tenant | see quota and use | create, remove, set quotas | - | - |
//! | audit | query and export | - | - | pass the right to read on |
//!
//! An action of this table without meaning is refused to each subject. An entry of the audit about an entity is visible
//! only to a subject that may also read the entity.
//!
//! # Default policy
//!
//! - A **super administrator** belongs to the hub and has all rights on all entities.
//! - An **administrator** has all rights on the entities of its tenant, except that it only reads the tenant itself and
//!   the accounts of administrators; a super administrator appoints administrators. It has all rights but *write* on the
//!   shared catalogue: it passes *read* and *execute* on within its tenant.
//! - Each **user** reads and executes the catalogue of its tenant and the shared catalogue, reads users, groups and quotas
//!   of its tenant, has all rights on its own clusters with their machines and jobs, and manages its own credentials.
//! - A **grant** adds rights. It counts only while its giver has the right to grant and the given right, so a grant
//!   widens nothing, and a circle of grants gives nothing.
//!
//! [`Policy`] has restrictions of these rules. An outside policy can restrict or replace the rules ([`consult`]). Nothing
//! leads through the wall between tenants, and nothing widens the [`Scope`] of an API token.
//!
//! # Hidden entities
//!
//! An entity on which a subject has no right at all does not exist for this subject: [`Decision::answer`] gives the same
//! answer as for an unknown name. Numbers of grants count in each tenant alone. The caller looks names up in the tenant of
//! the subject only, and decides about an unknown name as about an entity without owner.
//!
//! ```text
//! lib ─┬─ change ── check ─┐
//!      ├─ outside ─────────┼── decide ── chain (grants) ── directory ─┬─ entity
//!      └───────────────────┘                                          └─ quota
//! ```

mod chain;
mod change;
mod check;
mod decide;
mod directory;
mod entity;
mod outside;
mod quota;

#[cfg(test)]
mod properties_test;
#[cfg(test)]
mod roles_test;

pub use change::{Change, Fault, Refused};
pub use decide::{Answer, Decision, Rule, Scope, ScopeRule, Standing, Subject, Why, may, visible};
pub use directory::{Directory, Giver, Grant, GrantId, Grantee, Group, Names, Pattern, Policy, Tenant, User};
pub use entity::{Action, Actions, BadName, Entity, Kind, Name, UserId};
pub use outside::{Consultation, Question, Reply, Role, VERSION, consult};
pub use quota::{Exceeded, Excess, Level, Quota, Resource, Usage, fits};
