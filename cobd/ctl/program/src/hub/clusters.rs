//! `cobctl cluster`.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::Duration;

use cob_hub_api::{Cluster, ClusterRequest, JobId, Lease, Name, Operation, Preview, Wanted};
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::Screen;
use serde_json::{Map, Value};

use super::args::{ClusterCommand, ConfigArgs, ConfigureArgs, CreateArgs, OrderArgs};
use super::{Context, failure, follow, pairs, show};

pub(super) async fn run(context: &Context, screen: &mut Screen, command: ClusterCommand) -> CommandResult {
    let (name, operation, order) = match command {
        ClusterCommand::List => return list(context, screen).await,
        ClusterCommand::Show(args) => return cluster(context, screen, &args.name).await,
        ClusterCommand::Create(args) => return create(context, screen, args).await,
        ClusterCommand::Lease { name, lease } => return extend(context, screen, &name, lease).await,
        ClusterCommand::Resize { name, nodes, order } => (name, Operation::Resize { nodes }, order),
        ClusterCommand::AddServices(args) => {
            let add = pairs::names(&args.services);
            (args.name, Operation::Services { add, remove: Default::default() }, args.order)
        }
        ClusterCommand::RemoveServices(args) => {
            let remove = pairs::names(&args.services);
            (args.name, Operation::Services { add: Default::default(), remove }, args.order)
        }
        ClusterCommand::Configure(args) => {
            let config = configuration(context, &args).await?;
            (args.name, Operation::Configure { config }, args.order)
        }
        ClusterCommand::Start(args) => {
            (args.name, Operation::Start { services: pairs::names(&args.services) }, args.order)
        }
        ClusterCommand::Stop(args) => {
            (args.name, Operation::Stop { services: pairs::names(&args.services) }, args.order)
        }
        ClusterCommand::Restart(args) => {
            (args.name, Operation::Restart { services: pairs::names(&args.services) }, args.order)
        }
        ClusterCommand::Sync(args) => (args.name, Operation::Sync {}, args.order),
        ClusterCommand::Rollback(args) => (args.name, Operation::Rollback {}, args.order),
        ClusterCommand::Replace { name, node, order } => (name, Operation::Replace { node }, order),
        ClusterCommand::Delete(args) => (args.name, Operation::Delete {}, args.order),
    };
    operate(context, screen, &name, operation, order).await
}

async fn list(context: &Context, screen: &mut Screen) -> CommandResult {
    let clusters = context.client.clusters().await.map_err(failure)?;
    if context.json {
        screen.json(&clusters)?;
    } else if clusters.is_empty() {
        screen.say("no clusters; `cobctl cluster create NAME --template TEMPLATE --nodes N` makes a cluster");
    } else {
        for line in show::clusters(screen, &clusters, show::now_ms()) {
            screen.line(&line)?;
        }
    }
    Ok(Exit::Yes)
}

async fn cluster(context: &Context, screen: &mut Screen, name: &Name) -> CommandResult {
    let cluster = context.client.cluster(name).await.map_err(failure)?;
    if context.json {
        screen.json(&cluster)?;
        return Ok(Exit::Yes);
    }
    for line in show::cluster(screen, &cluster, show::now_ms()) {
        screen.line(&line)?;
    }
    Ok(Exit::Yes)
}

async fn create(context: &Context, screen: &mut Screen, args: CreateArgs) -> CommandResult {
    let request = ClusterRequest {
        wanted: Wanted {
            template: args.template,
            nodes: args.nodes,
            services: Some(pairs::names(&args.services)).filter(|services| !services.is_empty()),
            provider: args.provider,
            hardwaretype: args.hardware,
            imagetype: args.image,
            config: initial(&args.config)?,
        },
        name: args.name,
        lease_s: args.lease.map(|lease| lease.as_secs()),
        keep_failed: args.keep_failed,
    };
    if args.order.plan {
        let preview = context.client.preview_creation(&request).await.map_err(failure)?;
        return plan(context, screen, &preview);
    }
    let started = context.client.create(&request, args.order.priority).await.map_err(failure)?;
    ordered(context, screen, started.job, &format!("creation of {}", request.name), args.order.wait).await
}

fn initial(args: &ConfigArgs) -> Result<Map<String, Value>, Failure> {
    let mut config = args.config_file.as_deref().map(pairs::map).transpose()?.unwrap_or_default();
    pairs::set(&mut config, &args.values);
    Ok(config)
}

/// The whole configuration of a cluster after the change.
async fn configuration(context: &Context, args: &ConfigureArgs) -> Result<Map<String, Value>, Failure> {
    if let Some(file) = &args.config_file {
        return pairs::map(file);
    }
    let Cluster { wanted: Wanted { mut config, .. }, .. } =
        context.client.cluster(&args.name).await.map_err(failure)?;
    pairs::set(&mut config, &args.values);
    pairs::unset(&mut config, &args.unset)?;
    Ok(config)
}

async fn extend(context: &Context, screen: &mut Screen, name: &Name, lease: Duration) -> CommandResult {
    let cluster = context.client.extend_lease(name, Lease { lease_s: lease.as_secs() }).await.map_err(failure)?;
    let ends = cluster.lease_ends_ms.map_or_else(|| "never ends".to_owned(), |ms| format!("ends {}", show::moment(ms)));
    context.answer(screen, &cluster, &format!("the lease of {name} {ends}"))
}

async fn operate(
    context: &Context,
    screen: &mut Screen,
    name: &Name,
    operation: Operation,
    order: OrderArgs,
) -> CommandResult {
    if order.plan {
        let preview = context.client.preview(name, &operation).await.map_err(failure)?;
        return plan(context, screen, &preview);
    }
    let base = if order.yes { None } else { ask(context, screen, name, &operation).await? };
    let what = format!("{} of {name}", show::operation(&operation));
    let started = context.client.operate(name, &operation, base.as_deref(), order.priority).await.map_err(failure)?;
    ordered(context, screen, started.job, &what, order.wait).await
}

fn plan(context: &Context, screen: &mut Screen, preview: &Preview) -> CommandResult {
    if context.json {
        screen.json(preview)?;
        return Ok(Exit::Yes);
    }
    for line in show::preview(screen, preview) {
        screen.line(&line)?;
    }
    Ok(Exit::Yes)
}

/// Names the job of an order, and follows it.
async fn ordered(context: &Context, screen: &mut Screen, job: JobId, what: &str, wait: bool) -> CommandResult {
    if wait {
        if !context.json {
            screen.line(&format!("job {job}: {what}"))?;
        }
        return follow::follow(context, screen, job).await;
    }
    let text = format!("job {job}: {what}; `cobctl job watch {job}` follows it");
    context.answer(screen, &cob_hub_api::Started { job }, &text)
}

/// What an operation takes away, for the question.
pub(super) fn loss(operation: &Operation, cluster: &Cluster) -> Option<&'static str> {
    match operation {
        Operation::Delete {} => Some("stops all services and deletes all machines"),
        Operation::Resize { nodes } if *nodes < cluster.wanted.nodes => Some("deletes machines"),
        Operation::Services { remove, .. } if !remove.is_empty() => Some("removes services"),
        Operation::Replace { .. } => Some("deletes the machine of the node"),
        Operation::Configure { .. } | Operation::Sync {} | Operation::Restart { .. } => Some("may interrupt services"),
        Operation::Rollback {} => Some("may interrupt services and delete machines"),
        Operation::Stop { .. } => Some("stops services"),
        Operation::Create {} | Operation::Resize { .. } | Operation::Services { .. } | Operation::Start { .. } => None,
    }
}

/// Asks before an operation that takes something away. Returns the name of the state for which the plan was shown.
async fn ask(
    context: &Context,
    screen: &mut Screen,
    name: &Name,
    operation: &Operation,
) -> Result<Option<String>, Failure> {
    let cluster = context.client.cluster(name).await.map_err(failure)?;
    let Some(loss) = loss(operation, &cluster) else { return Ok(None) };
    let what = show::operation(operation);
    let not_done = |why: &str| Failure::usage(format!("`{what}` of {name} was not ordered: {why}"));
    if !(io::stdin().is_terminal() && screen.is_err_live()) {
        let why = format!("it {loss}, and there is no terminal to confirm it");
        return Err(not_done(&why).hint("--yes skips the question, --plan shows what would happen"));
    }
    // Some operations have no plan; their question names what they take away.
    let preview = context.client.preview(name, operation).await.ok();
    for line in preview.iter().flat_map(|preview| show::preview(screen, preview)).collect::<Vec<_>>() {
        screen.say(&line);
    }
    let is_deletion = *operation == Operation::Delete {};
    let question = if is_deletion { "type its name to confirm:" } else { "type yes to confirm:" };
    screen.say(&format!("`{what}` of {name} {loss}; {question}"));
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let wanted = if is_deletion { name.as_str() } else { "yes" };
    if line.trim() == wanted {
        Ok(preview.and_then(|preview| preview.base))
    } else {
        Err(not_done("it was not confirmed"))
    }
}
