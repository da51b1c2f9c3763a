//! The command line of the hub's commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use cob_hub_api::{EntityKind, Name};
use cob_hub_client::HubAddress;
use cob_permissions::{Action, Kind, Name as RightsName};
use cobctl::words::parse_span;

use super::jobs::{JobArgs, JobsArgs};
use super::queue::QueueCommand;
use super::{help, pairs::Pair};

/// The commands for a hub, apart from the commands of the library.
#[derive(Debug, Parser)]
pub(crate) struct Line {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Create, change and delete clusters of a hub
    #[command(after_help = help::CLUSTER)]
    Cluster(ClusterArgs),
    /// List the jobs of a hub
    #[command(after_help = help::JOBS)]
    Jobs(JobsArgs),
    /// Show, watch, order and cancel a job of a hub
    #[command(after_help = help::JOB)]
    Job(JobArgs),
    /// Show and change templates, services and types of a hub
    #[command(after_help = help::CATALOGUE)]
    Catalogue(CatalogueArgs),
    /// Manage tenants, users, tokens, machines and the queue of a hub
    #[command(after_help = help::HUB)]
    Hub(HubArgs),
}

/// The hub and the tenant.
#[derive(Debug, Clone, Args)]
pub(crate) struct At {
    /// The hub: http://127.0.0.1:PORT, its socket, or its folder
    #[arg(long = "hub", id = "hub-address", global = true, env = "COB_HUB", value_name = "PATH-OR-URL")]
    #[arg(default_value = "/var/lib/cobhub/hub.sock", value_parser = |text: &str| text.parse::<HubAddress>())]
    pub(crate) hub: HubAddress,
    /// The tenant, for a super administrator
    #[arg(long, global = true, env = "COB_HUB_TENANT", value_name = "TENANT")]
    pub(crate) tenant: Option<Name>,
}

#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    pub(crate) at: At,
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// List your clusters
    List,
    /// Show a cluster and its machines
    Show(Named),
    /// Create a cluster from a template
    #[command(after_help = help::CREATE)]
    Create(CreateArgs),
    /// Change the number of nodes
    #[command(after_help = help::RESIZE)]
    Resize {
        /// The cluster
        name: Name,
        /// The number of nodes afterwards
        nodes: u32,
        #[command(flatten)]
        order: OrderArgs,
    },
    /// Add services; the layout decides on which nodes
    AddServices(ServicesArgs),
    /// Remove services
    RemoveServices(ServicesArgs),
    /// Change the configuration; services with changes restart
    #[command(after_help = help::CONFIGURE)]
    Configure(ConfigureArgs),
    /// Start stopped services
    Start(SomeServicesArgs),
    /// Stop services, and services that need these
    Stop(SomeServicesArgs),
    /// Restart services
    Restart(SomeServicesArgs),
    /// Take the newest version of the template and its services
    #[command(after_help = help::SYNC)]
    Sync(OperationArgs),
    /// Go back to the state before the last change
    #[command(after_help = help::ROLLBACK)]
    Rollback(OperationArgs),
    /// Replace the machine of a node by a new machine
    #[command(after_help = help::REPLACE)]
    Replace {
        /// The cluster
        name: Name,
        /// The node: the name of its host
        node: String,
        #[command(flatten)]
        order: OrderArgs,
    },
    /// Let a cluster live so long from now
    #[command(after_help = help::LEASE)]
    Lease {
        /// The cluster
        name: Name,
        /// The time from now, as in 7d or 36h
        #[arg(value_parser = parse_span)]
        lease: Duration,
    },
    /// Stop the services and delete the machines
    #[command(after_help = help::DELETE)]
    Delete(OperationArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The cluster
    pub(crate) name: Name,
}

/// How an order is given.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct OrderArgs {
    /// Show nodes, machines to create and delete, and stages; change nothing
    #[arg(long, conflicts_with_all = ["wait", "yes"])]
    pub(crate) plan: bool,
    /// Follow the job to its end; exit 0 only if it succeeds
    #[arg(long)]
    pub(crate) wait: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// The priority of the job: -20 (the most important) to 19 [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "plan")]
    pub(crate) priority: Option<i8>,
}

#[derive(Debug, Args)]
pub(crate) struct OperationArgs {
    /// The cluster
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The name of the new cluster: letters, digits and `-`
    pub(crate) name: Name,
    /// The template
    #[arg(long, value_name = "TEMPLATE")]
    pub(crate) template: String,
    /// The number of nodes
    #[arg(long, value_name = "N")]
    pub(crate) nodes: u32,
    /// The services, in place of the template's default
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub(crate) services: Vec<String>,
    /// The provider of the machines
    #[arg(long, value_name = "PROVIDER")]
    pub(crate) provider: Option<String>,
    /// The type of hardware
    #[arg(long, value_name = "TYPE")]
    pub(crate) hardware: Option<String>,
    /// The type of image
    #[arg(long, value_name = "TYPE")]
    pub(crate) image: Option<String>,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// How long the cluster shall live, as in 7d [default: set by the hub]
    #[arg(long, value_name = "DURATION", value_parser = parse_span)]
    pub(crate) lease: Option<Duration>,
    /// Keep the machines after a failed creation, to look at them
    #[arg(long)]
    pub(crate) keep_failed: bool,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

/// A configuration.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfigArgs {
    /// A value of the configuration, as in web.port=8080; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", conflicts_with = "config_file")]
    pub(crate) values: Vec<Pair>,
    /// The whole configuration, as YAML or JSON; `-`: standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) config_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigureArgs {
    /// The cluster
    pub(crate) name: Name,
    /// Values to set, as in web.port=8080; other values stay
    #[arg(value_name = "KEY=VALUE", required_unless_present_any = ["config_file", "unset"])]
    pub(crate) values: Vec<Pair>,
    /// Take the cluster's own value of a key away, so that the template's value applies; may be repeated
    #[arg(long, value_name = "KEY")]
    pub(crate) unset: Vec<String>,
    /// Replace the whole configuration by this file, as YAML or JSON; `-`: standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["values", "unset"])]
    pub(crate) config_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ServicesArgs {
    /// The cluster
    pub(crate) name: Name,
    /// The services
    #[arg(required = true, value_name = "SERVICE")]
    pub(crate) services: Vec<String>,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SomeServicesArgs {
    /// The cluster
    pub(crate) name: Name,
    /// The services [default: all]
    #[arg(value_name = "SERVICE")]
    pub(crate) services: Vec<String>,
    #[command(flatten)]
    pub(crate) order: OrderArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CatalogueArgs {
    #[command(flatten)]
    pub(crate) at: At,
    #[command(subcommand)]
    pub(crate) command: CatalogueCommand,
}

/// `providers` or `provider`.
fn kind(text: &str) -> Result<EntityKind, String> {
    let found = EntityKind::ALL.into_iter().find(|kind| {
        let section = kind.section();
        let text = text.replace('-', "");
        section == text || section.strip_suffix('s') == Some(&text)
    });
    let all = EntityKind::ALL.map(EntityKind::section).join(", ");
    found.ok_or_else(|| format!("the kinds are {all}"))
}

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogueCommand {
    /// List the entities of a kind
    List {
        /// providers, hardwaretypes, imagetypes, services or templates
        #[arg(value_parser = kind)]
        kind: EntityKind,
    },
    /// Print the definition of an entity
    Show {
        /// providers, hardwaretypes, imagetypes, services or templates
        #[arg(value_parser = kind)]
        kind: EntityKind,
        /// The entity
        name: String,
        /// A former version, as `versions` lists it
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
    /// List the versions of an entity with their authors
    Versions {
        /// providers, hardwaretypes, imagetypes, services or templates
        #[arg(value_parser = kind)]
        kind: EntityKind,
        /// The entity
        name: String,
    },
    /// Make or replace an entity
    #[command(after_help = help::SET)]
    Set {
        /// providers, hardwaretypes, imagetypes, services or templates
        #[arg(value_parser = kind)]
        kind: EntityKind,
        /// The entity
        name: String,
        /// The definition, as YAML or JSON; `-`: standard input
        file: PathBuf,
        /// For all tenants
        #[arg(long)]
        shared: bool,
    },
    /// Delete an entity
    Delete {
        /// providers, hardwaretypes, imagetypes, services or templates
        #[arg(value_parser = kind)]
        kind: EntityKind,
        /// The entity
        name: String,
        /// Of the part for all tenants
        #[arg(long)]
        shared: bool,
    },
    /// Print all entities as a document
    #[command(after_help = help::EXPORT)]
    Export {
        /// In the form of Coopr's export, not of a model
        #[arg(long)]
        coopr: bool,
        /// The part for all tenants
        #[arg(long)]
        shared: bool,
    },
    /// Make or replace all entities of a document
    #[command(after_help = help::IMPORT)]
    Import {
        /// The document, as YAML or JSON; `-`: standard input
        file: PathBuf,
        /// The document is an export of Coopr, not a model
        #[arg(long)]
        coopr: bool,
        /// For all tenants
        #[arg(long)]
        shared: bool,
    },
    /// Write a file that services use, or a part of the model
    #[command(after_help = help::SET_FILE)]
    SetFile {
        /// Its path in the catalogue
        path: String,
        /// The local file; `-`: standard input
        file: PathBuf,
        /// For all tenants
        #[arg(long)]
        shared: bool,
    },
    /// Delete a file
    DeleteFile {
        /// Its path in the catalogue
        path: String,
        /// Of the part for all tenants
        #[arg(long)]
        shared: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct HubArgs {
    #[command(flatten)]
    pub(crate) at: At,
    #[command(subcommand)]
    pub(crate) command: HubCommand,
}

fn rights_name(text: &str) -> Result<RightsName, String> {
    RightsName::new(text).map_err(|e| e.to_string())
}

/// Limits; a missing limit means that there is none.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct QuotaArgs {
    /// The most machines [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) machines: Option<u32>,
    /// The most clusters [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) clusters: Option<u32>,
    /// The most jobs at a time [default: no limit]
    #[arg(long, value_name = "N")]
    pub(crate) parallel_jobs: Option<u32>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HubCommand {
    /// Show your name, tenant and rank
    Whoami,
    /// List tenants, users, groups and grants
    Users,
    /// Add a tenant
    #[command(after_help = help::ADD_TENANT)]
    AddTenant {
        /// The tenant
        #[arg(value_name = "NAME", value_parser = rights_name)]
        name: RightsName,
        #[command(flatten)]
        quota: QuotaArgs,
    },
    /// Set the quota of a tenant
    SetQuota {
        /// The tenant
        #[arg(value_name = "NAME", value_parser = rights_name)]
        name: RightsName,
        #[command(flatten)]
        quota: QuotaArgs,
    },
    /// Remove a tenant without clusters, with its users
    RemoveTenant {
        /// The tenant
        #[arg(value_name = "NAME", value_parser = rights_name)]
        name: RightsName,
    },
    /// Add a user to the tenant
    #[command(after_help = help::ADD_USER)]
    AddUser {
        /// The user
        #[arg(value_parser = rights_name)]
        user: RightsName,
        /// As an administrator of the tenant
        #[arg(long)]
        administrator: bool,
    },
    /// Appoint a user as an administrator of the tenant, or dismiss it
    SetAdministrator {
        /// The user
        #[arg(value_parser = rights_name)]
        user: RightsName,
        /// true or false
        #[arg(action = clap::ArgAction::Set)]
        administrator: bool,
    },
    /// Set the quota of a user, in place of the tenant's quota for each user
    SetUserQuota {
        /// The user
        #[arg(value_parser = rights_name)]
        user: RightsName,
        #[command(flatten)]
        quota: QuotaArgs,
    },
    /// Add a super administrator of the hub
    AddSuperAdministrator {
        /// The name
        #[arg(value_parser = rights_name)]
        name: RightsName,
    },
    /// Remove a super administrator; the last one stays
    RemoveSuperAdministrator {
        /// The name
        #[arg(value_parser = rights_name)]
        name: RightsName,
    },
    /// Remove a user of the tenant, with its tokens
    RemoveUser {
        /// The user
        #[arg(value_parser = rights_name)]
        user: RightsName,
    },
    /// Add a group of users to the tenant
    AddGroup {
        /// The group
        #[arg(value_parser = rights_name)]
        group: RightsName,
    },
    /// Remove a group of the tenant
    RemoveGroup {
        /// The group
        #[arg(value_parser = rights_name)]
        group: RightsName,
    },
    /// Set all groups of a user
    SetGroups {
        /// The user
        #[arg(value_parser = rights_name)]
        user: RightsName,
        /// The groups; none: the user leaves all groups
        #[arg(value_name = "GROUP", value_parser = rights_name)]
        groups: Vec<RightsName>,
    },
    /// Give rights on entities to a user or a group
    #[command(after_help = help::GRANT)]
    Grant(GrantArgs),
    /// Take a grant back
    Revoke {
        /// The number of the grant, as `users` lists it
        grant: u64,
    },
    /// Make a token, and print it
    #[command(after_help = help::TOKEN)]
    Token {
        /// The user of the token [default: you]
        #[arg(long, value_name = "USER", value_parser = rights_name)]
        user: Option<RightsName>,
        /// Its purpose, for people
        #[arg(long, value_name = "TEXT", default_value = "")]
        label: String,
        /// How long it is valid, as in 30d [default: until the user is removed]
        #[arg(long, value_name = "DURATION", value_parser = parse_span)]
        lives: Option<Duration>,
        /// Write it to a new file with mode 0600
        #[arg(long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Set the password of a user, for the log-in on the hub's page
    #[command(after_help = help::PASSWORD)]
    Password {
        /// The user [default: you]
        #[arg(value_parser = rights_name)]
        user: Option<RightsName>,
        /// The password is the first line of this file, or of standard input with `-` [default: ask on the terminal]
        #[arg(long, value_name = "FILE", conflicts_with = "remove")]
        from: Option<PathBuf>,
        /// Remove the password: the user can't log in with one any more
        #[arg(long)]
        remove: bool,
    },
    /// Show what the tenant uses of its quota
    Usage,
    /// List tokens, without their secrets
    Tokens,
    /// Take a token back; it is not valid any more at once
    RevokeToken {
        /// The token, as `tokens` lists it
        id: String,
    },
    /// Show requests that changed something, or were refused
    #[command(after_help = help::AUDIT)]
    Audit {
        /// Only lines after this number
        #[arg(long, value_name = "NUMBER")]
        after: Option<u64>,
        /// Only lines of the last time, as in 2h or 7d
        #[arg(long, value_name = "DURATION", value_parser = parse_span)]
        since: Option<Duration>,
        /// The newest lines, the newest first
        #[arg(long)]
        newest: bool,
        /// Only lines of this user: TENANT/USER, or a super administrator
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Only lines of this cluster
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
    },
    #[command(flatten)]
    Queue(QueueCommand),
    /// List the machines of all clusters
    Machines {
        /// Machines of providers that no cluster knows
        #[arg(long)]
        orphans: bool,
    },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("to").required(true))]
#[command(group = clap::ArgGroup::new("names").required(true))]
pub(crate) struct GrantArgs {
    /// The actions: read, write, execute, grant
    #[arg(value_name = "ACTIONS", value_delimiter = ',', value_parser = action, required = true)]
    pub(crate) actions: Vec<Action>,
    /// The kind of the entities: template, service, provider, hardware-type, image-type or cluster
    #[arg(long, value_name = "KIND", value_parser = rights_kind)]
    pub(crate) on: Kind,
    /// An entity; may be repeated
    #[arg(long = "name", value_name = "NAME", group = "names", value_parser = rights_name)]
    pub(crate) entities: Vec<RightsName>,
    /// All entities of the kind, also later ones
    #[arg(long, group = "names")]
    pub(crate) all: bool,
    /// Entities of the part for all tenants
    #[arg(long)]
    pub(crate) shared: bool,
    /// The user who receives the rights
    #[arg(long, value_name = "USER", group = "to", value_parser = rights_name)]
    pub(crate) user: Option<RightsName>,
    /// The group whose members receive the rights
    #[arg(long, value_name = "GROUP", group = "to", value_parser = rights_name)]
    pub(crate) group: Option<RightsName>,
}

fn action(text: &str) -> Result<Action, String> {
    let found = Action::ALL.into_iter().find(|action| action.to_string() == text);
    found.ok_or_else(|| "the actions are read, write, execute and grant".to_owned())
}

fn rights_kind(text: &str) -> Result<Kind, String> {
    let found = Kind::ALL.into_iter().find(|kind| kind.to_string().replace(' ', "-") == text);
    let all = Kind::ALL.map(|kind| kind.to_string().replace(' ', "-")).join(", ");
    found.ok_or_else(|| format!("the kinds are {all}"))
}
