//! The kind back end `container`: a container that podman or docker runs below a unit of systemd.
//!
//! A container is a service: the content gives the text of a unit ([`unit`]), and the back end `service` starts, stops,
//! checks and watches this unit, keeps the earlier state and restores it. Only what the unit needs is made here
//! ([`supplies`]), in the process of the transition:
//!
//! ```text
//!   daemon ── check, watch, logs ──> service, with the content {unit, unit_file, ready, …}
//!     └────── runner ── mover ── runtime: image, networks, volumes; secrets into a file in memory
//!                         └───── service: the unit's transition
//! ```
//!
//! Rules: the new image is on the host before the old container stops. A container, network or volume that COB has not
//! made is never removed. The unit file and the words of commands contain no secrets.

mod backend;
mod choice;
mod runtime;
mod supplies;
mod unit;

use std::path::Path;

pub(super) use backend::ContainerKind;
pub(crate) use supplies::make_move;

use super::service;
use crate::run::Opener;

/// Deletes private data in memory of containers whose units are not managed any more.
pub(super) fn clear_leftovers(state_dir: &Path, opener: &Opener) {
    opener.clear("containers", |name| service::is_noted(&state_dir.join("services").join(name)));
}
