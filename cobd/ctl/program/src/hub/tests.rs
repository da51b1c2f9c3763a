//! The command line of the hub's commands, and their texts.

use clap::FromArgMatches as _;
use cob_hub_api::{Cluster, Job, Machine, Operation, Preview, Refusal};
use cob_hub_client::{CallError, HubAddress};
use cobctl::args::Args;
use cobctl::screen::Screen;
use serde_json::{Value, json};

use super::args::{CatalogueCommand, ClusterCommand, Command, HubCommand, Line};
use super::jobs::JobCommand;
use super::{GROUP, clusters, failure, people, queue, show};

/// A moment: 2026-11-28 12:00:00 UTC.
const NOON: u64 = 1_795_867_200_000;

fn read(line: &str) -> Result<Command, String> {
    let words = std::iter::once("cobctl").chain(line.split(' '));
    let matches = Args::described(Some(&GROUP)).try_get_matches_from(words).map_err(|e| e.to_string())?;
    Line::from_arg_matches(&matches).map(|line| line.command).map_err(|e| e.to_string())
}

/// Lines below an empty line: a table begins with blanks.
fn shown(lines: &[String]) -> String {
    format!("\n{}", lines.join("\n"))
}

fn value<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("valid")
}

#[test]
fn the_command_line_is_consistent_and_has_a_group_in_the_help() {
    let mut command = Args::described(Some(&GROUP));
    command.build();
    command.clone().debug_assert();
    let help = command.render_help().to_string();
    for line in ["\nClusters of a hub:\n", "\n  cluster        Create, change", "\n  hub            Manage tenants"] {
        assert!(help.contains(line), "{line}: {help}");
    }
    assert!(
        help.lines().filter(|line| line.starts_with("  ")).take(60).all(|line| line.chars().count() <= 100),
        "{help}"
    );
    let cluster = command.find_subcommand_mut("cluster").expect("there");
    let create = cluster.find_subcommand_mut("create").expect("there").render_help().to_string();
    assert!(create.contains("--hub <PATH-OR-URL>") && create.contains("--token-file"), "{create}");
    assert!(!create.contains("--depot") && !create.contains("--socket"), "{create}");
}

#[test]
fn orders_of_clusters_are_read() {
    let line = "cluster create shop --template webshop --nodes 5 --services a,b --lease 7d --set db.price=12 --wait \
                --hub http://127.0.0.1:7080 --tenant web";
    let Ok(Command::Cluster(args)) = read(line) else { panic!("{line}") };
    assert_eq!(args.at.hub, HubAddress::Http(([127, 0, 0, 1], 7080).into()));
    assert_eq!(args.at.tenant.as_ref().map(|tenant| tenant.as_str()), Some("web"));
    let ClusterCommand::Create(create) = args.command else { panic!("{line}") };
    assert_eq!((create.nodes, create.services, create.order.wait), (5, vec!["a".to_owned(), "b".to_owned()], true));
    assert_eq!(create.lease.map(|lease| lease.as_secs()), Some(7 * 24 * 3600));
    for good in [
        "cluster list",
        "cluster show shop",
        "cluster resize shop 8 --plan",
        "cluster add-services shop a b",
        "cluster configure shop a.b=1 --yes",
        "cluster configure shop --unset a.b",
        "cluster configure shop --config-file x.yaml",
        "cluster stop shop",
        "cluster replace shop shop-3 --wait --yes",
        "cluster lease shop 36h",
        "cluster delete shop -y",
        "cluster resize shop 8 --priority -5",
        "jobs --open --cluster shop",
        "jobs --state failed --user web/ann --since 1d --before 70 --limit 20",
        "job cancel 7 --kill",
        "job set-priority 7 -5",
        "hub queue",
        "hub drain --reason maintenance",
        "hub set-rule two rate-limit=2 --provider cloud --operation create --operation delete --new-only",
        "hub set-rule freeze pause --user web/ann --cluster web/shop --job 7 --of-tenant web --priority 3",
        "hub remove-rule freeze",
        "catalogue set template webshop webshop.yaml --shared",
        "catalogue list hardware-types",
        "hub add-tenant web --machines 6",
        "hub grant read,execute --on cluster --name shop --user ben",
        "hub grant read --on hardware-type --all --group all",
        "hub token --user ann --output ann.token --lives 30d",
        "hub machines --orphans",
        "hub set-administrator ben true",
        "hub set-user-quota ben --machines 3",
        "hub revoke-token 0123456789abcdef",
    ] {
        assert!(read(good).is_ok(), "{good}: {:?}", read(good).err());
    }
    for (bad, told) in [
        ("cluster create shop --template webshop", "--nodes"),
        ("cluster create Shop --template webshop --nodes 1", "lowercase letters"),
        ("cluster create shop --template t --nodes 1 --set x", "KEY=VALUE"),
        ("cluster resize shop 8 --plan --wait", "cannot be used with"),
        ("cluster configure shop", "required"),
        ("cluster configure shop a=1 --config-file x", "cannot be used with"),
        ("cluster lease shop 7", "no duration"),
        ("cluster list --hub https://hub", "no TLS"),
        ("cluster list --hub http://10.0.0.1:80", "plain text"),
        ("catalogue list things", "the kinds are providers"),
        ("hub grant fly --on cluster --all --user a", "the actions are"),
        ("hub grant read --on cluster --user a", "required"),
        ("hub grant read --on cluster --all", "required"),
        ("job show x", "invalid digit"),
        ("job set-priority 7 200", "200 is not in -128..=127"),
        ("jobs --state done", "unknown variant `done`, expected one of `queued`"),
        ("cluster resize shop 8 --plan --priority 3", "cannot be used with"),
        ("hub set-rule two rate-limit=0", "rate-limit=N with N from 1"),
        ("hub set-rule two stop", "the actions are accept, pause"),
    ] {
        let error = read(bad).map(|_| ()).expect_err(bad);
        assert!(error.contains(told), "{bad}: {error}");
    }
    assert!(
        matches!(read("job watch 7"), Ok(Command::Job(args)) if matches!(args.command, JobCommand::Watch { id: 7 }))
    );
    assert!(matches!(read("hub whoami"), Ok(Command::Hub(args)) if matches!(args.command, HubCommand::Whoami)));
    let listed = read("catalogue list service").expect("read");
    assert!(matches!(listed, Command::Catalogue(args) if matches!(args.command, CatalogueCommand::List { .. })));
}

fn cluster() -> Cluster {
    value(json!({
        "tenant": "web", "name": "shop", "owner": "ann",
        "wanted": {"template": "webshop", "nodes": 2, "provider": "process", "config": {"db": {"price": 12}}},
        "catalogue": "0123456789abcdef0123456789abcdef01234567", "state": "active", "generation": 3,
        "created_ms": NOON - 3_600_000, "lease_ends_ms": NOON + 90_000_000, "job": 7,
        "machines": [
            {"host": "shop-1", "cluster": "shop", "provider": "process", "address": "tcp://127.16.1.1:7077",
             "state": "confirmed", "token": "t"},
            {"host": "shop-2", "cluster": "shop", "provider": "process", "state": "requested", "token": "t"},
        ],
    }))
}

#[test]
fn a_cluster_is_shown_with_its_lease_its_job_and_its_machines() {
    let (screen, _) = Screen::memory();
    assert_eq!(
        show::cluster(&screen, &cluster(), NOON).join("\n"),
        "\
shop: active, generation 3, 2 nodes of the template webshop
owner ann, created 2026-11-28 11:00:00Z; lease ends 2026-11-29 13:00:00Z (in 25 h)
provider process, catalogue 0123456789ab
config: db.price = 12
job 7 works on it: `cobctl job watch 7`
   MACHINE  STATE      CLUSTER  PROVIDER  ADDRESS
✓  shop-1   confirmed  shop     process   tcp://127.16.1.1:7077
◦  shop-2   requested  shop     process   -"
    );
    assert_eq!(
        shown(&show::clusters(&screen, &[cluster()], NOON)),
        "
   CLUSTER  STATE   NODES  TEMPLATE  OWNER  LEASE  JOB
✓  shop     active  2      webshop   ann    25 h   7"
    );
}

fn job(state: &str) -> Job {
    value(json!({
        "id": 7, "tenant": "web", "cluster": "shop", "operation": {"operation": "resize", "nodes": 5}, "user": "web/ann",
        "state": state, "steps_done": 1, "steps": 5, "step": "create machines", "submitted_ms": NOON, "started_ms": NOON + 10,
    }))
}

#[test]
fn jobs_say_what_they_do_or_why_they_ended() {
    let (screen, _) = Screen::memory();
    let failed =
        Job { reason: Some("the provider \u{1b}[31mrefuses".to_owned()), ended_ms: Some(NOON + 1510), ..job("failed") };
    assert_eq!(
        shown(&show::jobs(&screen, &[job("running"), failed.clone()], NOON + 2010)),
        "
   JOB  STATE    CLUSTER  OPERATION          USER     TIME
◦  7    running  shop     resize to 5 nodes  web/ann  2.0 s  create machines (1 of 5 steps done)
✗  7    failed   shop     resize to 5 nodes  web/ann  1.5 s  the provider \\u{1b}[31mrefuses"
    );
    assert_eq!(
        shown(&show::job(&failed, NOON + 2010)),
        "
job 7: resize to 5 nodes of shop, failed: the provider \\u{1b}[31mrefuses
ordered by web/ann at 2026-11-28 12:00:00Z
took 1.5 s; 1 of 5 steps done"
    );
}

#[test]
fn a_priority_has_a_column_if_a_job_has_one() {
    let (screen, _) = Screen::memory();
    let urgent = Job { priority: -5, started_ms: None, step: None, ..job("queued") };
    let urgent = Job { reason: Some("the rule freeze pauses it: audit".to_owned()), ..urgent };
    assert_eq!(
        shown(&show::jobs(&screen, &[urgent.clone(), job("running")], NOON + 2010)),
        "
   JOB  STATE    PRIORITY  CLUSTER  OPERATION          USER     TIME
◦  7    queued   -5        shop     resize to 5 nodes  web/ann  -      the rule freeze pauses it: audit
◦  7    running  0         shop     resize to 5 nodes  web/ann  2.0 s  create machines (1 of 5 steps done)"
    );
    assert_eq!(
        shown(&show::job(&urgent, NOON)),
        "
job 7: resize to 5 nodes of shop, queued: the rule freeze pauses it: audit
ordered by web/ann at 2026-11-28 12:00:00Z with the priority -5"
    );
}

#[test]
fn the_queue_shows_its_drain_and_its_rules_in_their_order() {
    let queue = value(json!({
        "drain": {"reason": "the hub \u{1b}moves", "by": "root", "since_ms": NOON},
        "running": 1, "waiting": 2,
        "rules": [
            {"name": "two", "content": {"action": {"rate-limit": 2}, "priority": 1, "reason": "", "jobs": {}}},
            {"name": "freeze", "tenant": "web", "content": {
                "action": "pause", "priority": 9, "reason": "audit week",
                "jobs": {"ids": [7], "users": ["web/ann"], "operations": ["create", "delete"], "new_only": true},
            }},
        ],
    }));
    assert_eq!(
        queue::lines(&queue).join("\n"),
        "\
root drains the hub since 2026-11-28 12:00:00Z: the hub \\u{1b}moves; it accepts no new orders
1 running job and 2 waiting jobs
rule two (priority 1): run at most 2 of all jobs
rule web/freeze (priority 9): pause jobs with the number 7 of the user web/ann for the operation create and delete ordered later: audit week"
    );
}

#[test]
fn a_plan_names_machines_and_stages() {
    let (screen, _) = Screen::memory();
    let preview: Preview = value(json!({
        "nodes": [
            {"name": "shop-1", "services": ["db"], "hardwaretype": "small", "imagetype": null},
            {"name": "shop-2", "services": ["app"], "hardwaretype": "small", "imagetype": null},
            {"name": "shop-3", "services": ["app"], "hardwaretype": "small", "imagetype": null},
        ],
        "create": ["shop-2", "shop-3"], "delete": [],
        "tasks": [
            {"id": 1, "node": "shop-2", "action": "create"}, {"id": 2, "node": "shop-3", "action": "create"},
            {"id": 3, "node": "shop-2", "action": "start", "service": "app", "after": [1]},
            {"id": 4, "node": "shop-3", "action": "start", "service": "app", "after": [2]},
        ],
        "stages": [[1, 2], [3, 4]],
    }));
    assert_eq!(
        shown(&show::preview(&screen, &preview)),
        "
   NODE    MACHINE  HARDWARE  IMAGE  SERVICES
✓  shop-1  stays    small     -      db
◦  shop-2  new      small     -      app
◦  shop-3  new      small     -      app
2 machines to create: shop-2 and shop-3
no machine to delete
Stages, one after the other:
   1. create on shop-2 and shop-3
   2. start app on shop-2 and shop-3"
    );
}

#[test]
fn orphans_and_texts_of_others_are_harmless() {
    let (screen, _) = Screen::memory();
    let orphan: Machine = value(json!({
        "host": "x\u{1b}[2J", "cluster": null, "provider": "process", "state": "orphan", "token": "t",
    }));
    let lines = show::machines(&screen, &[orphan]).join("\n");
    assert!(!lines.contains('\u{1b}') && lines.contains("✗"), "{lines}");
}

#[test]
fn only_operations_without_a_loss_need_no_confirmation() {
    let asks = |operation: Value| clusters::loss(&value::<Operation>(operation), &cluster()).is_some();
    assert!(!asks(json!({"operation": "resize", "nodes": 3})));
    assert!(asks(json!({"operation": "resize", "nodes": 1})));
    assert!(!asks(json!({"operation": "services", "add": ["a"]})));
    assert!(asks(json!({"operation": "services", "remove": ["a"]})));
    assert!(!asks(json!({"operation": "start"})));
    for interrupting in ["stop", "restart", "sync", "rollback", "delete"] {
        assert!(asks(json!({ "operation": interrupting })), "{interrupting}");
    }
}

/// A refusal of the catalogue shows each fault with its place and its help, also as JSON.
#[test]
fn a_refused_model_shows_each_fault_with_its_place() {
    let refusal: Refusal = value(json!({
        "error": "the model would be wrong: no service `dbx`",
        "faults": [
            {"place": "templates.bad.json:5:9", "message": "no service `dbx`", "help": ["did you mean `db`?"]},
            {"place": "templates.bad.json:9:1", "message": "the key `foo` is unknown"},
            {"message": "a fault without a place"},
        ],
    }));
    let refused = failure(CallError::Refused { status: 422, refusal });
    assert_eq!(refused.code(), 1);
    let (mut screen, written) = Screen::memory();
    refused.print(&mut screen);
    assert_eq!(
        written.err(),
        "\
error: the model would be wrong: no service `dbx`
caused by: templates.bad.json:5:9: no service `dbx` (did you mean `db`?)
caused by: templates.bad.json:9:1: the key `foo` is unknown
caused by: a fault without a place
"
    );
    assert_eq!(refused.to_json()["causes"].as_array().map(Vec::len), Some(3));
}

#[test]
fn refusals_have_the_status_of_their_cause() {
    let refused = |status: u16| {
        let refusal = Refusal { error: "no".to_owned(), hint: Some("do it".to_owned()), faults: Vec::new() };
        failure(CallError::Refused { status, refusal })
    };
    assert_eq!(refused(400).code(), 2, "a wrong request");
    assert_eq!((refused(404).code(), refused(409).code()), (1, 1));
    assert_eq!(refused(409).hints(), ["do it"]);
    assert!(refused(401).hints()[0].contains("--token-file"), "{:?}", refused(401).hints());
}

#[test]
fn the_directory_is_a_list_of_tenants_with_their_users_groups_and_grants() {
    let directory = value(json!({
        "super_administrators": ["root"],
        "tenants": {"web": {
            "quota": {"machines": 6},
            "users": {
                "ann": {"administrator": true},
                "ben": {"groups": ["dev"], "grants": {"2": {
                    "actions": ["read"], "on": {"kind": "template", "names": "all", "shared": true},
                    "given_by": {"super-administrator": "root"},
                }}},
            },
            "groups": {"dev": {"grants": {"1": {
                "actions": ["read", "execute"], "on": {"kind": "cluster", "names": {"listed": ["shop"]}},
                "given_by": {"member": "ann"},
            }}}},
        }},
    }));
    assert_eq!(
        people::directory_lines(&directory).join("\n"),
        "\
super administrators: root
tenant web (at most 6 machines)
  administrator ann
  user ben, in dev
  group dev
  grant 1: read, execute on cluster shop for group dev
  grant 2: read on each shared template for user ben"
    );
}
