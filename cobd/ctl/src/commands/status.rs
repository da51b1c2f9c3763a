//! `cobctl status`: the present state of the cluster.

use cob_depot::tokens;
use cob_types::CobId;
use cob_types::api::StatusOf;

use super::near::near;
use super::view::{self, Shown};
use super::{Context, leaving};
use crate::args::{StatusArgs, Which};
use crate::failure::{CommandResult, Failure};
use crate::gather;
use crate::identity::OfDepot;
use crate::screen::Screen;
use crate::verdict::Expected;
use crate::words::list;

pub(super) async fn run(context: &Context, screen: &mut Screen, args: &StatusArgs) -> CommandResult {
    let hosts: Vec<_> = args.only.iter().map(Which::host).collect();
    let targets = context.only(&hosts).await?;
    let mut cluster = gather::cluster(&context.client, &targets).await;
    if args.only.is_empty() {
        let leave = leaving::find(context, &cluster, StatusOf::All).await?;
        cluster.hosts.extend(leave.into_iter().map(|(_, host)| host));
        cluster.hosts.sort_by(|a, b| a.name.cmp(&b.name));
    }
    if let Some(depot) = context.targets.depot.as_deref().filter(|_| args.only.is_empty()) {
        // Only operators with enrolment duties need the tokens; `cobgen enroll --list` reports a broken file.
        cluster.refused_tokens = tokens::read(depot).map(|tokens| tokens.refused()).unwrap_or_default();
    }
    let named = args.only.iter().filter_map(|which| match which {
        Which::Cob(cob) => Some(cob),
        Which::Host(_) => None,
    });
    let is_there = |cob: &CobId| cluster.hosts.iter().any(|h| !h.reachable || h.cobs.iter().any(|c| c.id == *cob));
    let unknown: Vec<&CobId> = named.filter(|cob| !is_there(cob)).collect();
    let like: Vec<CobId> =
        unknown.iter().flat_map(|cob| near(cluster.hosts.iter().flat_map(|h| &h.cobs), cob)).collect();
    let hint = if like.is_empty() { String::new() } else { format!("did you mean {}?", list(&like, 3)) };
    if context.json && !unknown.is_empty() {
        return Err(Failure::refused(format!("no host has {}", list(&unknown, 3))).hint(hint));
    }
    view::narrow(&mut cluster, &args.only);
    let depot = OfDepot::of(&context.targets, &cluster)?;
    if let Some(depot) = &depot {
        cluster.ahead_of_depot = depot.ahead(&cluster);
        depot.tell_ahead(&cluster, screen);
    }
    let contents = depot.map(OfDepot::contents).unwrap_or_default();
    let verdict = view::answer(&cluster, &args.only, &Expected { contents, ..Expected::default() });
    if context.json {
        screen.json(&cluster)?;
    } else {
        let shown = if args.all { Shown::All } else { Shown::Fitting };
        for line in view::lines(screen, &cluster, &args.only, shown, &verdict) {
            screen.line(&line)?;
        }
    }
    if !hint.is_empty() {
        screen.problem("hint", &hint);
    }
    Ok(verdict.exit())
}
