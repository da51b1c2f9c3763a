//! Users as MariaDB stores them: ways to log in, limits, and the TLS that a connection needs.

use cob_kinds::{MariadbServer, MariadbTls};
use serde_json::{Map, Value, json};
use sha1::{Digest as _, Sha1};

use super::super::sql::literal;
use super::client::{self, name};

/// The method that checks a password.
const PASSWORD: &str = "mysql_native_password";
/// The method that checks the account of the host.
const SOCKET: &str = "unix_socket";
/// A hash that no password has.
const NO_HASH: &str = "invalid";
/// The limits: keys of a content, keys of the server, and words of a statement.
pub(super) const LIMITS: [(&str, &str, &str); 4] = [
    ("max_queries_per_hour", "max_questions", "MAX_QUERIES_PER_HOUR"),
    ("max_updates_per_hour", "max_updates", "MAX_UPDATES_PER_HOUR"),
    ("max_connections_per_hour", "max_connections", "MAX_CONNECTIONS_PER_HOUR"),
    ("max_user_connections", "max_user_connections", "MAX_USER_CONNECTIONS"),
];

/// The hash of a password, as the server stores it.
pub(super) fn hash(password: &str) -> String {
    let digest = Sha1::digest(Sha1::digest(password.as_bytes()));
    let digits: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    format!("*{digits}")
}

/// The ways to log in that accept a password with this hash.
pub(super) fn by_hash(hash: &str) -> Value {
    json!([[PASSWORD, hash.to_ascii_uppercase()]])
}

/// The ways to log in that accept the account of the host with the name of the user.
pub(super) fn by_socket() -> Value {
    json!([[SOCKET, ""]])
}

/// The ways to log in that accept no password.
pub(super) fn by_nothing() -> Value {
    json!([[PASSWORD, NO_HASH]])
}

/// Ways to log in for people, without hashes.
pub(super) fn described(ways: &Value) -> String {
    let ways: Vec<&str> = ways.as_array().into_iter().flatten().filter_map(|way| way[0].as_str()).collect();
    format!("another way: {}", ways.join(" or "))
}

/// The word of a content for TLS that a connection needs.
pub(super) fn tls_word(tls: MariadbTls) -> &'static str {
    match tls {
        MariadbTls::Optional => "optional",
        MariadbTls::Required => "required",
        MariadbTls::Certificate => "certificate",
    }
}

/// The attributes of a user. `None`: it does not exist.
pub(super) fn attributes(server: &MariadbServer, user: &str, host: &str) -> Result<Option<Map<String, Value>>, String> {
    let query =
        format!("SELECT Priv FROM mysql.global_priv WHERE User = {} AND Host = {};", literal(user), literal(host));
    let row = client::row(server, &query).map_err(|why| match why.contains("global_priv") {
        true => format!("{why}: the server is not MariaDB 10.4 or later"),
        false => why,
    })?;
    Ok(row.map(|stored| read(&stored)))
}

/// The attributes in the words of a content.
fn read(stored: &Value) -> Map<String, Value> {
    let text = |of: &Value, key: &str| of[key].as_str().unwrap_or_default().to_owned();
    // In a list of ways, an empty entry stands for the way beside it.
    let way = |of: &Value| {
        let of = if of.get("plugin").is_some() { of } else { stored };
        json!([text(of, "plugin"), text(of, "authentication_string")])
    };
    let ways = match stored["auth_or"].as_array() {
        Some(all) => all.iter().map(way).collect(),
        None => vec![way(stored)],
    };
    let tls = match stored["ssl_type"].as_u64() {
        Some(1) => json!(tls_word(MariadbTls::Required)),
        Some(2) => json!(tls_word(MariadbTls::Certificate)),
        Some(3) => json!({
            "SUBJECT": text(stored, "x509_subject"),
            "ISSUER": text(stored, "x509_issuer"),
            "CIPHER": text(stored, "ssl_cipher"),
        }),
        _ => json!(tls_word(MariadbTls::Optional)),
    };
    let limits = LIMITS.map(|(key, of, _)| (key.to_owned(), json!(stored[of].as_i64().unwrap_or_default())));
    let others = [
        ("authentication".to_owned(), Value::Array(ways)),
        ("tls".to_owned(), tls),
        ("locked".to_owned(), json!(stored["account_locked"] == json!(true))),
    ];
    limits.into_iter().chain(others).collect()
}

/// The words of CREATE USER and ALTER USER that give a user these attributes.
pub(super) fn options(wanted: &Map<String, Value>) -> String {
    let mut words = Vec::new();
    if let Some(ways) = wanted.get("authentication").and_then(Value::as_array) {
        let text = |way: &Value, at: usize| way[at].as_str().unwrap_or_default().to_owned();
        let way = |way: &Value| match (name(&text(way, 0)), text(way, 1)) {
            (method, stored) if stored.is_empty() => method,
            (method, stored) => format!("{method} USING {}", literal(&stored)),
        };
        words.push(format!("IDENTIFIED VIA {}", ways.iter().map(way).collect::<Vec<_>>().join(" OR ")));
    }
    match wanted.get("tls") {
        Some(Value::String(word)) if word == tls_word(MariadbTls::Required) => words.push("REQUIRE SSL".to_owned()),
        Some(Value::String(word)) if word == tls_word(MariadbTls::Certificate) => words.push("REQUIRE X509".to_owned()),
        Some(Value::Object(named)) => {
            let named = named.iter().filter_map(|(word, text)| Some((word, text.as_str()?)));
            let named =
                named.filter(|(_, text)| !text.is_empty()).map(|(word, text)| format!("{word} {}", literal(text)));
            words.push(format!("REQUIRE {}", named.collect::<Vec<_>>().join(" AND ")));
        }
        Some(_) => words.push("REQUIRE NONE".to_owned()),
        None => {}
    }
    let limits = LIMITS.iter().filter_map(|(key, _, word)| Some(format!("{word} {}", wanted.get(*key)?)));
    let limits: Vec<String> = limits.collect();
    if !limits.is_empty() {
        words.push(format!("WITH {}", limits.join(" ")));
    }
    words.extend(wanted.get("locked").and_then(Value::as_bool).map(|locked| {
        let word = if locked { "LOCK" } else { "UNLOCK" };
        format!("ACCOUNT {word}")
    }));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_that_of_mariadb() {
        // The example of PASSWORD() in the manual.
        assert_eq!(hash("notagoodpwd"), "*3A70EE9FC6594F88CE9E959CD51C5A1C002DC937");
    }

    #[test]
    fn stored_attributes_come_back_as_statements() {
        let stored = json!({"access": 0, "plugin": PASSWORD, "authentication_string": NO_HASH,
            "auth_or": [{"plugin": SOCKET}, {}], "ssl_type": 3, "x509_subject": "/CN=it's", "max_questions": 4,
            "max_user_connections": -1, "account_locked": true});
        assert_eq!(
            options(&read(&stored)),
            "IDENTIFIED VIA `unix_socket` OR `mysql_native_password` USING 'invalid' REQUIRE SUBJECT '/CN=it''s' WITH \
             MAX_QUERIES_PER_HOUR 4 MAX_UPDATES_PER_HOUR 0 MAX_CONNECTIONS_PER_HOUR 0 MAX_USER_CONNECTIONS -1 ACCOUNT LOCK"
        );
        let stored = json!({"plugin": SOCKET, "authentication_string": "", "ssl_type": 2});
        assert_eq!(read(&stored)["authentication"], by_socket());
        assert!(options(&read(&stored)).contains("VIA `unix_socket` REQUIRE X509"));
    }
}
