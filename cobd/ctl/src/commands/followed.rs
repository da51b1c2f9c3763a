//! The cluster that `cobctl page` and `cobctl watch` follow: the status of its hosts, and the depot.

use std::time::Duration;

use cob_types::GenerationNumber;
use cob_types::api::StatusOf;
use cob_types::status::ClusterStatus;

use super::plan::most_common;
use super::{Context, context, leaving, view};
use crate::args::{Global, Which};
use crate::identity::{Contents, OfDepot};
use crate::live::Live;
use crate::page::message::{Cluster, Judged};
use crate::screen::Screen;
use crate::targets::Target;
use crate::verdict::{Expected, Verdict};

/// How often the depot is looked at: a new generation may have other hosts.
pub(super) const DEPOT: Duration = Duration::from_secs(2);

/// A followed cluster.
pub(super) struct Followed {
    pub(super) context: Context,
    global: Global,
    pub(super) live: Live,
    /// The first targets, which are followed even if the depot does not name them.
    named: Vec<Target>,
    targets: Vec<Target>,
    /// The contents of the depot's generations, and the number of its newest one.
    contents: Contents,
    newest: Option<GenerationNumber>,
}

/// The result of a look at the depot.
pub(super) struct Looked {
    context: Context,
    targets: Vec<Target>,
    contents: Contents,
    newest: Option<GenerationNumber>,
}

impl Followed {
    /// Follows these targets, and the further hosts of the depot.
    pub(super) fn start(context: Context, global: Global, targets: Vec<Target>) -> Self {
        let live = Live::start(&context.client, &targets, StatusOf::All);
        let named = targets.iter().filter(|target| !context.targets.all.contains(target)).cloned().collect();
        Self { context, global, live, named, targets, contents: Contents::new(), newest: None }
    }

    /// Looks for new generations and for other hosts. A depot that can't be read for a moment changes nothing. The look
    /// may wait for silent hosts.
    pub(super) fn look_at_depot(&self) -> impl Future<Output = Looked> + Send + use<> {
        let (global, known, named) = (self.global.clone(), self.context.clone(), self.named.clone());
        let (status, mut newest, mut contents) = (self.live.cluster(), self.newest, self.contents.clone());
        async move {
            let read = {
                let (mut quiet, _) = Screen::memory();
                context(&global, &mut quiet)
            };
            let context = read.unwrap_or(known);
            if let Ok(Some(depot)) = OfDepot::of(&context.targets, &status) {
                newest = Some(depot.newest());
                contents = depot.contents();
            }
            let mut targets = with_named(&named, &context.targets.all);
            if let Ok(leave) = leaving::find(&context, &status, StatusOf::Active).await {
                targets.extend(leave.into_iter().map(|(target, _)| target));
            }
            Looked { context, targets, contents, newest }
        }
    }

    /// Takes the result of a look at the depot.
    pub(super) fn take(&mut self, looked: Looked) {
        let Looked { context, targets, contents, newest } = looked;
        (self.context, self.contents, self.newest) = (context, contents, newest);
        if targets != self.targets {
            self.live = Live::start(&self.context.client, &targets, StatusOf::All);
            self.targets = targets;
        }
    }

    /// The answer of `cobctl status` about these hosts and change objects, all if none is named.
    pub(super) fn cluster(&self, status: &ClusterStatus, only: &[Which]) -> (Cluster, Verdict) {
        let verdict = view::answer(status, only, &Expected { contents: self.contents.clone(), ..Expected::default() });
        let (word, sentence, reasons) = match &verdict {
            Verdict::Converged(_) => {
                (Judged::Converged, view::conclusion(&Screen::memory().0, status, &verdict).concat(), Vec::new())
            }
            Verdict::Not(reasons) => (Judged::Not, "The cluster is not converged.".to_owned(), reasons.clone()),
            Verdict::Unreached(hosts, reasons) => {
                let hosts = crate::words::list(hosts, 4);
                (Judged::Unreached, format!("{hosts} could not be reached."), reasons.clone())
            }
        };
        let cluster = Cluster {
            verdict: word,
            sentence,
            reasons,
            next: view::next_step(status)
                .filter(|_| !matches!(verdict, Verdict::Converged(_)))
                .map(|next| next.replace('`', "")),
            generation: Some(most_common(status)).filter(|n| *n != GenerationNumber(0)),
            newest: self.newest,
            depot: self.context.targets.depot.is_some(),
        };
        (cluster, verdict)
    }
}

/// The named targets, and the others that have another address.
pub(super) fn with_named(named: &[Target], all: &[Target]) -> Vec<Target> {
    let others = all.iter().filter(|target| !named.iter().any(|one| one.endpoint == target.endpoint));
    named.iter().chain(others).cloned().collect()
}
