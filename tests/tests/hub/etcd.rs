//! Members of an etcd, as the operators of several hubs have them.

use cob_tests::processes::{self, Signal};

#[path = "../../../cobgen/hub/store/tests/store/members.rs"]
mod members;

pub(crate) use members::Members;

impl Members {
    /// The value of `--store`.
    pub(crate) fn store(&self) -> String {
        format!("etcd:{}", self.addresses.join(","))
    }

    pub(crate) fn kill(&mut self, member: usize) {
        self.members[member].kill().expect("killed");
        self.members[member].wait().expect("ended");
    }

    /// Stops all members, or lets them go on.
    pub(crate) fn signal(&self, signal: Signal) {
        self.members.iter().for_each(|member| processes::signal(member.id(), signal));
    }
}
