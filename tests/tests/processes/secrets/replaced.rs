//! Replaces a host's key, as `docs/how-to/keys-and-operators.md` describes it, while its secrets stay in use.

use std::fs;

use cob_tests::cluster::Cluster;
use cob_trust::SecretKey;
use cob_types::generation::Security;
use cob_types::{GenerationNumber, PublicKey};
use cobgen::make::After;
use cobgen::secrets::Vault;

use crate::PATIENCE;

/// The content of the file before it held a secret.
const BEFORE: &str = "what the administrator wrote\n";

struct Host(Cluster);

impl Host {
    /// Switches to a generation with these keys of the host, with or without the file.
    fn go(&mut self, keys: &[PublicKey], file: bool) -> GenerationNumber {
        let generation = self.generate(keys, file);
        self.0.switch_all(generation);
        self.0.wait_converged(generation, PATIENCE);
        generation
    }

    fn generate(&mut self, keys: &[PublicKey], file: bool) -> GenerationNumber {
        let cluster = &mut self.0;
        let cobs = if file {
            let conf = cluster.path("conf");
            format!(
                "{{n1/conf: {{kind: file-tree, content: {{files: {{{}: {{content: \"password={{{{ secret('db') }}}}\\n\"}}}}}}}}}}",
                conf.display()
            )
        } else {
            "{}".to_owned()
        };
        let yaml = format!(
            "security: loopback-only\nhosts: {{n1: {{address: \"tcp://127.0.0.1:1\"}}}}\nsecrets: {{db: {{file: ./db}}}}\ncobs: {cobs}\n"
        );
        let model = cluster.write_model("model", &[("model.yaml", &yaml), ("db", "correct horse battery staple\n")]);
        let mut draft = cluster.load(&model);
        assert_eq!(draft.security, Security::Identities);
        draft.hosts.values_mut().for_each(|host| host.value.keys = keys.to_vec());
        let vault = Vault::new(Some(&cluster.path("site.key")), None);
        let found = vault.settle(&mut draft, &After::default());
        assert!(found.iter().all(|d| d.code == "new-site-key"), "{found:#?}");
        cluster.publish_draft(&draft)
    }

    fn conf(&self) -> String {
        fs::read_to_string(self.0.path("conf")).unwrap_or_default()
    }
}

#[test]
fn a_host_keeps_its_secrets_while_its_key_is_replaced() {
    let mut host = Host(Cluster::with_identities(env!("CARGO_BIN_EXE_cob"), &["n1"]));
    let old = host.0.host_key("n1").public();
    let (identity, next) = (host.0.path("n1/identity.key"), host.0.path("n1/identity.next.key"));
    fs::write(host.0.path("conf"), BEFORE).expect("written");
    let first = host.generate(&[old], true);
    host.0.bring_up(first, PATIENCE);
    for _ in 0..2 {
        assert_eq!(host.conf(), "password=correct horse battery staple\n");
        let old = SecretKey::load(&identity).expect("a key").public();
        let new = SecretKey::load_or_create(&next).expect("made").public();
        host.go(&[old, new], true);
        // Only the new key can open the new secrets, and it is not in place yet.
        host.go(&[new], true);
        fs::remove_file(host.0.path("conf")).expect("removed");
        host.0.until(PATIENCE, || host.conf().starts_with("password=correct"), "the file is healed with its secret");
        fs::rename(&next, &identity).expect("moved");
    }
    // Another daemon, which never had the first key.
    host.0.kill("n1");
    host.0.start("n1");
    host.0.wait_answers("n1");
    let last = SecretKey::load(&identity).expect("a key").public();
    host.go(&[last], false);
    assert_eq!(host.conf(), BEFORE, "what stood there before the first key was replaced");
}
