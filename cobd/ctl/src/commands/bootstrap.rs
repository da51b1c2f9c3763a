//! `cobctl bootstrap`: turns a machine with sshd into an enrolled host that runs the daemon.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cob_depot::enrolled::{self, Former};
use cob_depot::{Depot, tokens};
use cob_trust::SecretKey;
use cob_trust::enrol::Token;
use cob_types::{HostName, PublicKey};

use super::machines::{self, Trouble, Work};
use crate::args::{BootstrapArgs, Global};
use crate::failure::{CommandResult, Exit, Failure};
use crate::install::artefact::Artefact;
use crate::install::facts::Facts;
use crate::install::steps::{self, Step, Wanted};
use crate::screen::Screen;
use crate::settings::Settings;

/// The lifetime of a token, in seconds: it is used at once.
const LIFETIME: u64 = 900;

/// The result of a host that has enrolled.
const ENROLLED: &str = "enrolled";

/// The settings for all hosts.
#[derive(Debug)]
struct Site {
    depot: PathBuf,
    server: SocketAddr,
    server_key: PublicKey,
    artefacts: Arc<Vec<Artefact>>,
    replace: bool,
    follow: bool,
}

pub(super) async fn run(global: &Global, screen: &mut Screen, args: &BootstrapArgs) -> CommandResult {
    machines::once(&args.named)?;
    let depot = Settings::find(global)?.depot.ok_or_else(|| {
        Failure::usage("no depot is named, in which the hosts enrol").hint("name its folder with --depot or COB_DEPOT")
    })?;
    drop(Depot::open(&depot)?);
    let key = SecretKey::of_server(&depot, args.server_key.as_deref()).map_err(|error| {
        Failure::usage(anyhow::Error::from(error).context("the key of the depot's server can't be read"))
            .hint("run this where `cobgen serve` runs, as the same user")
    })?;
    let site = Arc::new(Site {
        depot,
        server: args.server,
        server_key: key.public(),
        artefacts: machines::artefacts(&args.artefacts)?,
        replace: args.replace,
        follow: args.follow,
    });
    let hosts = (args.named.as_slice(), args.parallel, &args.ssh);
    let results = machines::each(screen, global.json, hosts, |mut work| {
        let site = Arc::clone(&site);
        async move {
            let ended = site.bring(&mut work).await;
            (work, ended)
        }
    })
    .await?;
    let exit = machines::conclude(screen, global.json, &results)?;
    if !global.json {
        tell_what_is_next(screen, &site, exit, results.iter().any(|r| r.did(ENROLLED)));
    }
    Ok(exit)
}

fn tell_what_is_next(screen: &mut Screen, site: &Site, exit: Exit, enrolled: bool) {
    if exit != Exit::Yes {
        screen.problem("hint", "fix the cause and repeat the command: finished hosts are not changed");
    } else if enrolled {
        let depot = site.depot.display();
        let next = format!(
            "`cobgen generate MODEL --depot {depot}` puts the keys of new hosts into the next generation; then \
             `cobctl switch latest --wait --depot {depot}`"
        );
        screen.problem("hint", &next);
    }
}

impl Site {
    /// Runs the missing steps one after the other.
    async fn bring(&self, work: &mut Work) -> Result<Facts, Trouble> {
        let name = work.host.name.clone();
        work.does("connects").await;
        let mut facts = work.machine.look().await?;
        loop {
            let enrolled = self.enrolled(&name).await?;
            let wanted = Wanted {
                host: &name,
                artefacts: &self.artefacts,
                server: self.server,
                server_key: self.server_key,
                enrolled: &enrolled,
                replace: self.replace,
            };
            let Some(step) = steps::install(&facts, &wanted)? else { return Ok(facts) };
            let (does, did) = match step {
                Step::Install(artefact) => ("installs", format!("installed ({artefact})")),
                Step::Join => ("enrols", ENROLLED.to_owned()),
                Step::Start | Step::Restart => ("starts", "started".to_owned()),
            };
            work.makes(does).await?;
            facts = match step {
                Step::Install(artefact) => work.machine.install(artefact, None).await?,
                Step::Join => {
                    let token = self.token(&name).await?;
                    work.machine.join(self.server, token, self.follow).await?
                }
                Step::Start | Step::Restart => work.machine.start().await?,
            };
            work.did.push(did);
        }
    }

    /// The keys that have enrolled under this name.
    async fn enrolled(&self, name: &HostName) -> Result<Vec<PublicKey>, Trouble> {
        let (depot, name) = (self.depot.clone(), name.clone());
        aside(move || Ok(enrolled::read(&depot).map_err(|e| Trouble::of_depot(&e))?.remove(&name).unwrap_or_default()))
            .await
    }

    /// Issues a token for the host.
    async fn token(&self, name: &HostName) -> Result<Token, Trouble> {
        let (depot, key, name) = (self.depot.clone(), self.server_key, name.clone());
        aside(move || {
            let token = Token::generate(name.clone(), key).map_err(|e| Trouble::of_depot(&e))?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            tokens::issue(&depot, &name, token.hash(), (now, LIFETIME), Former::Revoke)
                .map_err(|e| Trouble::of_depot(&e))?;
            Ok(token)
        })
        .await
    }
}

/// Runs blocking file work on a separate thread.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T, Trouble> + Send + 'static) -> Result<T, Trouble> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
