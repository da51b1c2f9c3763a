//! The texts of the helps of the hub's commands.

/// What all helps of the groups say.
macro_rules! with_hub {
    ($text:literal) => {
        concat!(
            $text,
            "\n\nThe hub: --hub or COB_HUB. A token: COB_HUB_TOKEN, or the first line of the file --token-file (mode 0600). \
             The owner of a hub needs no token at its socket.\n\nExit status: 0 done; 1 refused, or the job failed; 2 bad usage; 3 the \
             hub could not be reached."
        )
    };
}

pub(super) const CLUSTER: &str = with_hub!(
    "\
Examples:
  cobctl cluster create shop --template webshop --nodes 5 --plan
  cobctl cluster create shop --template webshop --nodes 5 --wait
  cobctl cluster resize shop 8 --wait
  cobctl cluster list
  cobctl cluster delete shop

Each order becomes a job: `cobctl job watch ID` follows it. Orders that interrupt services or delete machines ask on a \
terminal, unless --yes."
);

pub(super) const JOBS: &str = with_hub!(
    "\
Examples:
  cobctl jobs --open
  cobctl jobs --state failed --since 1d
  cobctl jobs --user web/ann --limit 20
  cobctl jobs --cluster shop --json | jq '.[0].state'"
);

pub(super) const JOB: &str = with_hub!(
    "\
Examples:
  cobctl job show 7               also why it waits
  cobctl job watch 7              follow it to its end
  cobctl job set-priority 7 10    later than others
  cobctl job cancel 7             it rolls back what it has begun"
);

pub(super) const CATALOGUE: &str = with_hub!(
    "\
Examples:
  cobctl catalogue list templates
  cobctl catalogue show template webshop > webshop.yaml
  cobctl catalogue set template webshop webshop.yaml
  cobctl catalogue versions template webshop

The hub checks the whole model before a change counts. A refusal names each fault with its place, and changes nothing."
);

pub(super) const HUB: &str = with_hub!(
    "\
Examples:
  cobctl hub add-tenant web --machines 20
  cobctl hub add-user ann --tenant web
  cobctl hub token --user ann --tenant web --output ann.token
  cobctl hub machines --orphans
  cobctl hub set-rule freeze pause --reason 'release week'
  cobctl hub drain --reason 'the hub moves'"
);

pub(super) const SET_PRIORITY: &str = "\
Jobs with smaller numbers start first; jobs of one cluster always run in the order of their orders. A job that waits becomes \
one step more important every 10 minutes. Users give 0 to 19, administrators of a tenant -10 to 19, super administrators \
-20 to 19.";

pub(super) const DRAIN: &str = "\
Example:
  cobctl hub drain --reason 'the hub moves at 18:00'

A restart of the hub changes nothing. `cobctl hub queue` shows when no job runs any more.";

pub(super) const SET_RULE: &str = "\
Examples:
  cobctl hub set-rule freeze pause --operation delete --reason 'audit week'
  cobctl hub set-rule one-at-a-time rate-limit=1 --provider cloud
  cobctl hub set-rule no-new reject --of-tenant web --operation create --reason 'unpaid'
  cobctl hub set-rule urgent accept --job 7 --priority 1

The first rule that concerns a job applies to it, in the order of `cobctl hub queue`: by priority. The hub has rules, and each \
tenant has rules for its own jobs (--tenant); a job needs both. Jobs that run go on. A rule that is written again \
counts as new.";

pub(super) const CREATE: &str = "\
Examples:
  cobctl cluster create shop --template webshop --nodes 5 --plan
  cobctl cluster create shop --template webshop --nodes 5 --lease 7d --wait
  cobctl cluster create shop --template webshop --nodes 3 --services db,app --set db.price=12

If the creation fails, its machines are deleted, unless --keep-failed.

Exit status: 0 ordered, with --wait created; 1 refused, or the job failed; 3 the hub could not be reached.";

pub(super) const RESIZE: &str = "\
Examples:
  cobctl cluster resize shop 8 --plan
  cobctl cluster resize shop 8 --wait
  cobctl cluster resize shop 3 --yes      deletes machines

Exit status: 0 ordered, with --wait done; 1 refused, or the job failed; 3 the hub could not be reached.";

pub(super) const CONFIGURE: &str = "\
Examples:
  cobctl cluster configure shop db.price=12
  cobctl cluster configure shop --unset db.price
  cobctl cluster configure shop --config-file shop.yaml --plan

A value is JSON if it can be read as JSON, otherwise text: 12 is a number, true a truth value, '\"12\"' a text. A key with \
dots names a value in a map.";

pub(super) const SYNC: &str = "\
A cluster keeps the version of the catalogue with which it was made. `sync` takes the newest version of its template, of \
the services and of all other parts. `rollback` goes back.";

pub(super) const ROLLBACK: &str = "\
Goes back to the shape before the last operation that changed the cluster: nodes, services, configuration, version of the \
catalogue. A second rollback undoes the first.";

pub(super) const REPLACE: &str = "\
Example:
  cobctl cluster replace shop shop-3 --wait

Deletes the machine of the node, also if it does not answer, and declares its host dead: other hosts release its locks. \
Then makes a new machine with the same services.";

pub(super) const LEASE: &str = "\
Examples:
  cobctl cluster lease shop 7d
  cobctl cluster lease shop 36h

When the lease ends, the hub deletes the cluster. `cobctl cluster list` shows the remaining time.";

pub(super) const DELETE: &str = "\
Examples:
  cobctl cluster delete shop              asks for the name
  cobctl cluster delete shop --yes --wait

Exit status: 0 ordered, with --wait deleted; 1 refused, or the job failed; 3 the hub could not be reached.";

pub(super) const SET: &str = "\
Examples:
  cobctl catalogue set service db db.yaml
  cobctl catalogue set template webshop webshop.yaml --shared

The file contains the definition alone, as it stands below its name in a model. Clusters take the new version with \
`cobctl cluster sync`.";

pub(super) const EXPORT: &str = "\
Examples:
  cobctl catalogue export > catalogue.yaml
  cobctl catalogue export --coopr > export.json

The document has the newest versions. Files, such as scripts, are not part of it.";

pub(super) const IMPORT: &str = "\
Examples:
  cobctl catalogue import catalogue.yaml
  cobctl catalogue import --coopr export.json --shared

The entities are written in a single version, or none of them. Entities that are not in the document stay. Write the \
scripts of services first, with `cobctl catalogue set-file`.";

pub(super) const SET_FILE: &str = "\
Examples:
  cobctl catalogue set-file scripts/start.sh start.sh
  cobctl catalogue set-file security.yaml security.yaml --shared";

pub(super) const ADD_TENANT: &str = "\
Examples:
  cobctl hub add-tenant web
  cobctl hub add-tenant web --machines 20 --clusters 4 --parallel-jobs 2";

pub(super) const ADD_USER: &str = "\
Examples:
  cobctl hub add-user ann --tenant web
  cobctl hub add-user ben --tenant web --administrator

An administrator of a tenant manages its users and sees its clusters; a user sees own clusters. Only a super administrator \
appoints administrators.";

pub(super) const GRANT: &str = "\
Examples:
  cobctl hub grant read,execute --on cluster --name shop --user ben
  cobctl hub grant read,execute --on template --all --group developers
  cobctl hub grant write --on service --name db --shared --user ann

For a cluster: read shows it, execute starts and stops services, write changes and deletes it. For a template: execute \
makes clusters of it. A right on a cluster is a right on its machines and jobs.";

pub(super) const TOKEN: &str = "\
Examples:
  cobctl hub token --user ann --tenant web --output ann.token
  cobctl hub token --label ci --lives 30d

The hub keeps only a hash: a lost token cannot be shown again.";

pub(super) const PASSWORD: &str = "\
Examples:
  cobctl hub password ann --tenant web
  pass show hub/ann | cobctl hub password ann --tenant web --from -

All sessions of the user end; tokens stay. The hub keeps only a hash.";

pub(super) const AUDIT: &str = "\
Examples:
  cobctl hub audit --newest --cluster shop
  cobctl hub audit --since 1d
  cobctl hub audit --user web/ann --json | jq .decision

Prints up to 1000 lines; --after NUMBER prints the following ones. `cobhub verify-audit` checks the file itself.";
