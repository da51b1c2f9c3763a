//! Catalogues as documents: of a model, and of Coopr.

use serde_json::{Value, json};

use crate::faults::web;
use crate::yard::Yard;

/// A catalogue as Coopr exports it.
fn of_coopr() -> Value {
    let action = |verb: &str| json!({"type": "chef-solo", "fields": {"run_list": format!("recipe[till::{verb}]")}});
    json!({
        "providers": [{"name": "lab", "providertype": "odd", "provisioner": {}}],
        "hardwaretypes": [{"name": "small", "providermap": {"lab": {"flavor": "s"}}}],
        "imagetypes": [{"name": "debian", "providermap": {"lab": {"image": "12"}}}],
        "services": [{
            "name": "till",
            "icon": "till.png",
            "dependencies": {"runtime": {"uses": ["cache"]}},
            "provisioner": {"actions": {
                "install": action("install"), "start": action("start"), "stop": action("stop"), "remove": action("remove"),
            }},
        }],
        "clustertemplates": [{
            "name": "tills",
            "includes": [{"name": "fixed"}],
            "compatibility": {"services": ["till"]},
            "defaults": {"services": ["till"], "config": {"owner": "%cluster.owner%"}},
            "constraints": {"size": {"min": 1, "max": 3}},
        }],
        "partialtemplates": [{"name": "fixed", "immutable": true, "defaults": {"config": {"port": 80}}}],
    })
}

fn names(yard: &Yard, user: &str) -> Value {
    let sections = ["providers", "hardwaretypes", "imagetypes", "services", "templates"];
    let all = sections.map(|section| (section, yard.user(user, "GET", &format!("/v1/catalogue/{section}"), None).1));
    all.into_iter().collect()
}

#[test]
fn coopr_catalogues_are_imported_and_exported() {
    let mut yard = web(&[]);
    yard.tenant("other", &["olga"]);
    let before = names(&yard, "web/adm");
    let import = "/v1/import?form=coopr";
    let version = |yard: &Yard| yard.user("web/adm", "GET", "/v1/catalogue/templates/shop/versions", None).1;
    let versions = version(&yard);

    // A user without the right is refused, and so is a wrong document: the catalogue does not change in part.
    assert_eq!(yard.user("web/ann", "POST", import, Some(of_coopr())).0, 403);
    let mut wrong = of_coopr();
    wrong["clustertemplates"][0]["defaults"]["services"] = json!(["tilt"]);
    let (status, answer) = yard.user("web/adm", "POST", import, Some(wrong));
    assert_eq!(status, 422, "{answer}");
    assert!(answer.to_string().contains("did you mean `till`?"), "{answer}");
    for (document, status) in [
        (json!({}), 422),
        (json!([]), 422),
        (json!({"services": [{"label": "no name"}]}), 422),
        (json!({"services": [{"name": "../../evil"}]}), 400),
    ] {
        let (refused, answer) = yard.user("web/adm", "POST", import, Some(document.clone()));
        assert_eq!(refused, status, "{document}: {answer}");
    }
    assert_eq!((names(&yard, "web/adm"), version(&yard)), (before, versions));

    let (status, answer) = yard.user("web/adm", "POST", import, Some(of_coopr()));
    assert_eq!(status, 200, "{answer}");
    assert_eq!((&answer["entities"], &answer["changed"]), (&json!(6), &json!(true)));
    let lost = &answer["lost"];
    assert_eq!(lost.as_array().map(Vec::len), Some(1), "{lost}");
    assert!(lost[0]["message"].as_str().is_some_and(|text| text.contains("`icon`")), "{lost}");
    assert!(lost[0]["place"].as_str().is_some_and(|place| place.starts_with("document.json:")), "{lost}");
    // All entities are a single version, of the importer.
    for entity in ["services/till", "templates/tills", "templates/fixed", "providers/lab"] {
        let (_, written) = yard.user("web/adm", "GET", &format!("/v1/catalogue/{entity}"), None);
        assert_eq!((&written["version"], &written["author"]), (&answer["version"], &json!("adm")), "{entity}");
    }
    assert_eq!(yard.user("web/adm", "POST", import, Some(of_coopr())).1["changed"], false);

    // The export is what was imported, and another tenant sees none of it.
    let (_, exported) = yard.user("web/adm", "GET", "/v1/export?form=coopr", None);
    assert_eq!(exported.get("lost"), None, "{exported}");
    let document = &exported["document"];
    for (group, name) in
        [("providers", "lab"), ("services", "till"), ("clustertemplates", "tills"), ("partialtemplates", "fixed")]
    {
        assert_eq!(document[group][0]["name"], name, "{document}");
    }
    let (status, again) = yard.user("web/adm", "POST", import, Some(document.clone()));
    assert_eq!((status, &again["changed"]), (200, &json!(false)), "{again}");
    assert_eq!(yard.user("other/olga", "GET", "/v1/export", None).1["document"], json!({}));
    assert_eq!(yard.user("other/olga", "GET", "/v1/export?shared=true", None).0, 200);

    // As sections of a model it goes to another tenant, whose clusters it makes.
    let (_, model) = yard.user("web/adm", "GET", "/v1/export", None);
    assert_eq!(model["document"]["templates"]["fixed"]["immutable"], true, "{model}");
    let (status, answer) = yard.user("other/adm", "POST", "/v1/import", Some(model["document"].clone()));
    assert_eq!((status, &answer["entities"]), (200, &json!(6)), "{answer}");
    assert_eq!(yard.user("other/adm", "GET", "/v1/export", None).1, model);
    let wanted = json!({"name": "kiosk", "wanted": {"template": "tills", "nodes": 2}});
    let (status, plan) = yard.user("other/olga", "POST", "/v1/preview", Some(wanted));
    assert_eq!((status, plan["nodes"].as_array().map(Vec::len)), (200, Some(2)), "{plan}");
}
