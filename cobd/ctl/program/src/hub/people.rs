//! `cobctl hub`: tenants, users, groups, grants, tokens, audit, machines.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use cob_hub_api::{AuditQuery, Machine, PasswordRequest, TokenRequest, UsageOf};
use cob_permissions::{Change, Directory, Grant, GrantId, Grantee, Name, Names, Pattern, Quota, Tenant, UserId};
use cobctl::failure::{CommandResult, Exit, Failure};
use cobctl::screen::Screen;
use cobctl::words::{clean, list};
use serde_json::json;

use super::args::{GrantArgs, HubCommand, QuotaArgs};
use super::{Context, failure, queue, show};

/// The most bytes of a line with a password.
const LONGEST_LINE: u64 = 4096;
/// The most names in a message.
const NAMES: usize = 12;

pub(super) async fn run(context: &Context, screen: &mut Screen, command: HubCommand) -> CommandResult {
    let client = &context.client;
    match command {
        HubCommand::Whoami => {
            let me = client.whoami().await.map_err(failure)?;
            let tenant = me.tenant.as_ref().map(|tenant| format!(" of the tenant {tenant}")).unwrap_or_default();
            let text =
                format!("{}: {}{tenant}, at {}", clean(&me.user), me.standing.replace('-', " "), client.address());
            context.answer(screen, &me, &text)
        }
        HubCommand::Queue(command) => queue::run(context, screen, command).await,
        HubCommand::Users => users(context, screen).await,
        HubCommand::AddTenant { name, quota } => {
            let text = format!("the tenant {name} was added");
            let change = Change::AddTenant { tenant: name, quota: limits(quota), per_user: Quota::default() };
            changed(context, screen, &change, &text).await
        }
        HubCommand::SetQuota { name, quota } => {
            let directory = client.directory().await.map_err(failure)?;
            let per_user = directory.tenants.get(&name).map(|tenant| tenant.per_user).unwrap_or_default();
            let text = format!("the tenant {name}: {}", quota_text(&limits(quota)));
            changed(context, screen, &Change::SetQuota { tenant: name, quota: limits(quota), per_user }, &text).await
        }
        HubCommand::RemoveTenant { name } => {
            let text = format!("the tenant {name} was removed");
            changed(context, screen, &Change::RemoveTenant { tenant: name }, &text).await
        }
        HubCommand::AddUser { user, administrator } => {
            let tenant = tenant(context).await?;
            let rank = if administrator { "administrator" } else { "user" };
            let text = format!(
                "the {rank} {user} was added to the tenant {tenant}; `cobctl hub token --user {user} --tenant {tenant}` makes a token"
            );
            changed(context, screen, &Change::AddUser { tenant, user, administrator }, &text).await
        }
        HubCommand::SetAdministrator { user, administrator } => {
            let tenant = tenant(context).await?;
            let rank = if administrator { "an administrator" } else { "a user" };
            let text = format!("{user} is {rank} of the tenant {tenant}");
            changed(context, screen, &Change::SetAdministrator { tenant, user, administrator }, &text).await
        }
        HubCommand::SetUserQuota { user, quota } => {
            let tenant = tenant(context).await?;
            let quota = Some(limits(quota)).filter(|quota| *quota != Quota::default());
            let told =
                quota.as_ref().map_or_else(|| "the quota that the tenant has for each user".to_owned(), quota_text);
            let text = format!("the user {user}: {told}");
            changed(context, screen, &Change::SetUserQuota { tenant, user, quota }, &text).await
        }
        HubCommand::AddSuperAdministrator { name } => {
            let text = format!("the super administrator {name} was added");
            changed(context, screen, &Change::AddSuperAdministrator { name }, &text).await
        }
        HubCommand::RemoveSuperAdministrator { name } => {
            let text = format!("the super administrator {name} was removed");
            changed(context, screen, &Change::RemoveSuperAdministrator { name }, &text).await
        }
        HubCommand::RemoveUser { user } => {
            let tenant = tenant(context).await?;
            let text = format!("the user {user} was removed from the tenant {tenant}");
            changed(context, screen, &Change::RemoveUser { tenant, user }, &text).await
        }
        HubCommand::AddGroup { group } => {
            let tenant = tenant(context).await?;
            let text = format!("the group {group} was added to the tenant {tenant}");
            changed(context, screen, &Change::AddGroup { tenant, group }, &text).await
        }
        HubCommand::RemoveGroup { group } => {
            let tenant = tenant(context).await?;
            let text = format!("the group {group} was removed from the tenant {tenant}");
            changed(context, screen, &Change::RemoveGroup { tenant, group }, &text).await
        }
        HubCommand::SetGroups { user, groups } => {
            let tenant = tenant(context).await?;
            let named = if groups.is_empty() { "no group".to_owned() } else { list(&groups, NAMES) };
            let text = format!("the groups of {user}: {named}");
            let groups = groups.into_iter().collect();
            changed(context, screen, &Change::SetGroups { tenant, user, groups }, &text).await
        }
        HubCommand::Grant(args) => grant(context, screen, args).await,
        HubCommand::Revoke { grant } => {
            let change = Change::Revoke { tenant: tenant(context).await?, grant: GrantId(grant) };
            changed(context, screen, &change, &format!("grant {grant} was taken back")).await
        }
        HubCommand::Token { user, label, lives, output } => {
            let user = match user {
                Some(name) => Some(UserId { tenant: own_tenant(context).await?, name }),
                None => None,
            };
            let lives_s = lives.map(|lives| lives.as_secs());
            token(context, screen, TokenRequest { user, label, scope: None, lives_s }, output.as_deref()).await
        }
        HubCommand::Password { user, from, remove } => {
            let user = match user {
                Some(name) => Some(UserId { tenant: own_tenant(context).await?, name }),
                None => None,
            };
            let password = if remove { None } else { Some(asked_password(from.as_deref())?) };
            client.set_password(&PasswordRequest { user, password, present: None }).await.map_err(failure)?;
            let text = if remove { "the password was removed" } else { "the password was set" };
            context.answer(screen, &json!({ "password": !remove }), &format!("{text}; all sessions of the user ended"))
        }
        HubCommand::Usage => usage(context, screen).await,
        HubCommand::Tokens => tokens(context, screen).await,
        HubCommand::RevokeToken { id } => {
            client.revoke_token(&id).await.map_err(failure)?;
            context.answer(screen, &json!({ "token": id }), &format!("the token {id} is not valid any more"))
        }
        HubCommand::Audit { after, since, newest, user, cluster } => {
            let since_ms =
                since.map(|since| show::now_ms().saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)));
            let query = AuditQuery { after, since_ms, newest, user, cluster, ..AuditQuery::default() };
            audit(context, screen, query).await
        }
        HubCommand::Machines { orphans } => {
            let machines = if orphans { client.orphans().await } else { client.machines().await };
            machines_of(context, screen, &machines.map_err(failure)?, orphans)
        }
    }
}

/// The tenant that a change is about: the named one, or the caller's own.
async fn tenant(context: &Context) -> Result<Name, Failure> {
    let tenant = own_tenant(context).await?;
    tenant.ok_or_else(|| Failure::usage("which tenant?").hint("name it with --tenant"))
}

async fn own_tenant(context: &Context) -> Result<Option<Name>, Failure> {
    let tenant = match context.client.tenant() {
        Some(tenant) => Some(tenant.clone()),
        None => context.client.whoami().await.map_err(failure)?.tenant,
    };
    tenant.map(|tenant| Name::new(tenant.as_str()).map_err(|e| Failure::usage(e.to_string()))).transpose()
}

async fn changed(context: &Context, screen: &mut Screen, change: &Change, text: &str) -> CommandResult {
    context.client.change_directory(change).await.map_err(failure)?;
    context.answer(screen, change, text)
}

fn limits(args: QuotaArgs) -> Quota {
    Quota { machines: args.machines, clusters: args.clusters, parallel_jobs: args.parallel_jobs }
}

fn quota_text(quota: &Quota) -> String {
    let limits = [("machines", quota.machines), ("clusters", quota.clusters), ("parallel jobs", quota.parallel_jobs)];
    let told: Vec<String> =
        limits.into_iter().filter_map(|(what, most)| Some(format!("at most {} {what}", most?))).collect();
    if told.is_empty() { "no quota".to_owned() } else { told.join(", ") }
}

async fn grant(context: &Context, screen: &mut Screen, args: GrantArgs) -> CommandResult {
    let to = match (args.user, args.group) {
        (Some(user), _) => Grantee::User(user),
        (None, Some(group)) => Grantee::Group(group),
        (None, None) => return Err(Failure::usage("to which user or group?").hint("name it with --user or --group")),
    };
    let names = if args.all { Names::All } else { Names::Listed(args.entities.into_iter().collect()) };
    let change = Change::Give {
        tenant: tenant(context).await?,
        to,
        actions: args.actions.into_iter().collect(),
        on: Pattern { kind: args.on, names, shared: args.shared },
    };
    changed(context, screen, &change, "the rights were given; `cobctl hub users` lists all grants").await
}

async fn token(context: &Context, screen: &mut Screen, request: TokenRequest, output: Option<&Path>) -> CommandResult {
    let Some(path) = output else {
        let token = context.client.make_token(&request).await.map_err(failure)?;
        return context.answer(screen, &token, &token.token);
    };
    let unwritable = |e| Failure::usage(format!("can't make the file {}: {e}", path.display()));
    // Before the request: a token that can't be written would be lost.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(unwritable)?;
    let token = match context.client.make_token(&request).await {
        Ok(token) => token,
        Err(error) => {
            // An empty file is no token.
            let _ = std::fs::remove_file(path);
            return Err(failure(error));
        }
    };
    file.write_all(format!("{}\n", token.token).as_bytes()).and_then(|()| file.sync_all()).map_err(unwritable)?;
    let text = format!("the token is in {}; use it with --token-file", path.display());
    context.answer(screen, &json!({ "file": path }), &text)
}

/// A new password: from a file, or twice from the terminal.
fn asked_password(from: Option<&Path>) -> Result<String, Failure> {
    let unreadable =
        |what: &str, e: &dyn std::fmt::Display| Failure::usage(format!("can't read the password from {what}: {e}"));
    if let Some(path) = from {
        let mut line = String::new();
        let read = if path == Path::new("-") {
            std::io::stdin().lock().take(LONGEST_LINE).read_line(&mut line)
        } else {
            std::fs::File::open(path).and_then(|file| BufReader::new(file.take(LONGEST_LINE)).read_line(&mut line))
        };
        read.map_err(|e| unreadable(&path.display().to_string(), &e))?;
        return Ok(line.trim_end_matches(['\n', '\r']).to_owned());
    }
    let ask = |question: &str| {
        rpassword::prompt_password(question)
            .map_err(|e| unreadable("the terminal", &e).hint("--from FILE names a file"))
    };
    let password = ask("New password: ")?;
    if password != ask("Again: ")? {
        return Err(Failure::usage("the two passwords differ").hint("nothing was changed; run the command again"));
    }
    Ok(password)
}

async fn usage(context: &Context, screen: &mut Screen) -> CommandResult {
    let usages = context.client.usage().await.map_err(failure)?;
    if context.json {
        screen.json(&usages)?;
        return Ok(Exit::Yes);
    }
    let whose = [("all of the tenant", Some(&usages.tenant)), ("your own", usages.own.as_ref())];
    let mut table = screen.table(&["WHOSE", "MACHINES", "CLUSTERS"]);
    for (whose, of) in whose {
        let Some(UsageOf { used, quota }) = of else { continue };
        let cell =
            |used: u32, most: Option<u32>| most.map_or_else(|| used.to_string(), |most| format!("{used} of {most}"));
        table.add_row([whose.to_owned(), cell(used.machines, quota.machines), cell(used.clusters, quota.clusters)]);
    }
    for line in screen.lines(&table) {
        screen.line(&line)?;
    }
    Ok(Exit::Yes)
}

async fn tokens(context: &Context, screen: &mut Screen) -> CommandResult {
    let tokens = context.client.tokens().await.map_err(failure)?;
    if context.json {
        screen.json(&tokens)?;
        return Ok(Exit::Yes);
    }
    if tokens.is_empty() {
        screen.say("no tokens");
        return Ok(Exit::Yes);
    }
    let mut table = screen.table(&["TOKEN", "USER", "MADE", "ENDS", "LABEL"]);
    for token in &tokens {
        let UserId { tenant, name } = &token.user;
        table.add_row([
            clean(&token.id),
            tenant.as_ref().map_or_else(|| name.to_string(), |tenant| format!("{tenant}/{name}")),
            show::moment(token.made_ms),
            token.ends_ms.map_or_else(|| show::or_none(None), show::moment),
            clean(&token.label),
        ]);
    }
    for line in screen.lines(&table) {
        screen.line(&line)?;
    }
    Ok(Exit::Yes)
}

async fn users(context: &Context, screen: &mut Screen) -> CommandResult {
    let directory = context.client.directory().await.map_err(failure)?;
    if context.json {
        screen.json(&directory)?;
        return Ok(Exit::Yes);
    }
    for line in directory_lines(&directory) {
        screen.line(&line)?;
    }
    Ok(Exit::Yes)
}

/// The directory as a list: tenants, then their users, groups and grants.
pub(super) fn directory_lines(directory: &Directory) -> Vec<String> {
    let mut lines = Vec::new();
    if !directory.super_administrators.is_empty() {
        lines.push(format!("super administrators: {}", list(&directory.super_administrators, NAMES)));
    }
    for (name, tenant) in &directory.tenants {
        lines.push(format!("tenant {name} ({})", quota_text(&tenant.quota)));
        tenant_lines(tenant, &mut lines);
    }
    lines
}

fn tenant_lines(tenant: &Tenant, lines: &mut Vec<String>) {
    for (name, user) in &tenant.users {
        let rank = if user.administrator { "administrator" } else { "user" };
        let groups = if user.groups.is_empty() { String::new() } else { format!(", in {}", list(&user.groups, NAMES)) };
        let quota = user.quota.map(|quota| format!(" ({})", quota_text(&quota))).unwrap_or_default();
        lines.push(format!("  {rank} {name}{groups}{quota}"));
    }
    lines.extend(tenant.groups.keys().map(|name| format!("  group {name}")));
    let mut grants: Vec<(GrantId, Grantee, &Grant)> = tenant.grants().collect();
    grants.sort_by_key(|(id, ..)| *id);
    for (GrantId(id), to, grant) in grants {
        let to = match to {
            Grantee::User(name) => format!("user {name}"),
            Grantee::Group(name) => format!("group {name}"),
        };
        let actions: Vec<String> = grant.actions.iter().map(|action| action.to_string()).collect();
        let shared = if grant.on.shared { "shared " } else { "" };
        let names = match &grant.on.names {
            Names::All => format!("each {shared}{}", grant.on.kind),
            Names::Listed(names) => format!("{shared}{} {}", grant.on.kind, list(names, NAMES)),
        };
        lines.push(format!("  grant {id}: {} on {names} for {to}", actions.join(", ")));
    }
}

async fn audit(context: &Context, screen: &mut Screen, query: AuditQuery) -> CommandResult {
    let lines = context.client.audit(&query).await.map_err(failure)?;
    if context.json {
        for line in &lines {
            // A line of JSON each, as in the file.
            let text = serde_json::to_string(line).map_err(|e| Failure::environment(e.to_string()))?;
            screen.line(&text)?;
        }
        return Ok(Exit::Yes);
    }
    let mut table = screen.table(&["NUMBER", "TIME", "USER", "REQUEST", "CLUSTER", "JOB", "DECISION"]);
    for line in &lines {
        table.add_row([
            line.number.to_string(),
            show::moment(line.time_ms),
            clean(&line.note.user),
            clean(&line.note.request),
            show::or_none(line.note.cluster.as_deref()),
            line.note.job.map_or_else(|| show::or_none(None), |job| job.to_string()),
            clean(&line.note.decision),
        ]);
    }
    for line in screen.lines(&table) {
        screen.line(&line)?;
    }
    Ok(Exit::Yes)
}

fn machines_of(context: &Context, screen: &mut Screen, machines: &[Machine], orphans: bool) -> CommandResult {
    if context.json {
        screen.json(&machines)?;
    } else if machines.is_empty() {
        screen.say(if orphans { "no orphans: each machine belongs to a cluster" } else { "no machines" });
    } else {
        for line in show::machines(screen, machines) {
            screen.line(&line)?;
        }
    }
    Ok(Exit::Yes)
}
