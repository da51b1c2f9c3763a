//! The part of the loop that runs operators' commands on this host.

use cob_engine::record::OrderRecord;
use cob_types::command_run::RunOrder;
use tokio::sync::oneshot;

use super::Daemon;
use crate::adhoc::{Note, Running};
use crate::run::Sealed;
use crate::web::Refusal;

impl Daemon {
    /// Has a command run beside the loop.
    pub(super) fn run_command(&self, order: RunOrder, who: String, reply: oneshot::Sender<Result<Running, Refusal>>) {
        self.adhoc.begin(order, who, self.secrets_here(), reply);
    }

    /// Puts on record that a command starts or has ended.
    pub(super) fn note_command(&mut self, note: Note) {
        let Note { record, who, durable } = note;
        self.note_order(OrderRecord::Run(record), who);
        self.turn.beside.push(Box::pin(async move {
            // A task that has ended meanwhile does not miss it.
            let _ = durable.send(());
        }));
    }

    /// All secrets that this host knows, encrypted: no command may show their values.
    fn secrets_here(&self) -> Sealed {
        let all = self.present.all().flat_map(|prepared| prepared.bundle.secrets().iter());
        all.map(|(id, sealed)| (*id, sealed.to_vec())).collect()
    }
}
