//! Orders to a host that switches in steps, because it has missed more generations than there are switch orders from.

use std::fs;

use cob_tests::cluster::Cluster;
use cob_types::GenerationNumber;

use crate::follows::publish;
use crate::words::{cobctl, order, run, told};
use crate::{PATIENCE, cluster};

/// The generations of this test: the first, the step, and the goal, which the host that was not away has activated.
struct Story {
    cluster: Cluster,
    one: GenerationNumber,
    step: GenerationNumber,
    goal: GenerationNumber,
}

impl Story {
    /// `n1` has the seventh generation; `n2` was away since the first, and is held in it, on its way to a step.
    fn begin() -> Self {
        let mut cluster = cluster(&["n1", "n2"]);
        let one = publish(&mut cluster, 1);
        cluster.bring_up(one, PATIENCE);
        cluster.kill("n2");
        (2..=6).for_each(|number| _ = publish(&mut cluster, number));
        // With the content of an eighth generation, because the model's seventh fails.
        let goal = publish(&mut cluster, 8);
        cluster.switch("n1", goal);
        let is_there = || cluster.status("n1").is_some_and(|s| s.generation == Some(goal) && s.converged);
        cluster.until(PATIENCE, is_there, "n1 is there");
        fs::write(cluster.path("hold"), "").expect("written");
        cluster.start("n2");
        let sets_out = || cluster.status("n2").is_some_and(|s| s.switching_to.is_some());
        cluster.until(PATIENCE, sets_out, "n2 sets out");
        let status = cluster.status("n2").expect("answers");
        let step = status.switching_to.expect("on its way");
        assert!(one < step && step < goal, "by a step: {step}");
        assert_eq!((status.goal(), status.newest()), (Some(goal), Some(goal)));
        Self { cluster, one, step, goal }
    }

    fn go_on(&self) {
        fs::remove_file(self.cluster.path("hold")).expect("removed");
    }

    /// `n2` has converged in the first given generation, and `n1` in the second.
    fn ends(&self, n2: GenerationNumber, n1: GenerationNumber) {
        let is_in = |host: &str, generation| {
            let status = self.cluster.status(host);
            status.is_some_and(|s| s.generation == Some(generation) && s.goal().is_none() && s.settled && s.converged)
        };
        self.cluster.until(PATIENCE, || is_in("n2", n2) && is_in("n1", n1), "both have come to rest");
    }
}

fn refused(cluster: &Cluster, word: &str, generation: GenerationNumber) -> String {
    let body = format!("{{\"generation\":{generation}}}");
    cluster.http("n2", "POST", &format!("/v1/{word}"), &body).expect_err("refused")
}

#[test]
fn a_switch_in_steps_can_not_be_discarded() {
    let story = Story::begin();
    let Story { cluster, step, goal, .. } = &story;
    for generation in [goal, step] {
        let why = refused(cluster, "call-off", *generation);
        assert!(why.contains("409") && why.contains(&format!("switched to generation {goal}")), "{why}");
    }
    assert!(cluster.path(&format!("n2/generations/{goal}")).exists(), "nothing of it is deleted");
    assert!(cluster.status("n2").is_some_and(|s| s.prepared.is_empty()), "it is no longer one that is only prepared");
    story.go_on();
    story.ends(*goal, *goal);
}

#[test]
fn a_switch_in_steps_is_cancelled_and_goes_on_by_its_goal() {
    let mut story = Story::begin();
    let (step, goal) = (story.step, story.goal);
    let (code, said) = run(cobctl(&story.cluster, &["n2"], &["cancel", "--on-failure", "hold"]));
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("generation {goal}: ")), "{said}");
    let held = |s: &Story| s.cluster.status("n2").is_some_and(|h| h.held == Some(goal) && h.paused);
    assert!(held(&story));
    let body = format!("{{\"generation\":{goal}}}");
    let cluster = &story.cluster;
    assert_eq!(
        order(cluster, "n2", "cancel", &format!("{{\"generation\":{goal},\"on_failure\":\"hold\"}}"))["changed"],
        false
    );
    let again = order(cluster, "n2", "switch", &body);
    assert!(again["detail"].as_str().is_some_and(|d| d.contains("`cobctl resume` continues it")), "{again}");
    story.go_on();
    story.cluster.kill("n2");
    story.cluster.start("n2");
    story.cluster.wait_answers("n2");
    assert!(held(&story), "in its next life too");
    assert!(
        story.cluster.status("n2").is_some_and(|s| s.generation == Some(story.one) && s.switching_to == Some(step))
    );
    assert_eq!(order(&story.cluster, "n2", "resume", "{}")["changed"], true);
    story.ends(goal, goal);
}

#[test]
fn an_order_for_the_step_itself_leaves_the_goal() {
    let story = Story::begin();
    let Story { cluster, step, goal, .. } = &story;
    let (code, said) = run(cobctl(cluster, &["n2"], &["cancel", "--on-failure", "hold"]));
    assert_eq!(code, 0, "{said}");
    let done = order(cluster, "n2", "switch", &format!("{{\"generation\":{step},\"who\":\"ann\"}}"));
    assert_eq!(done["changed"], true, "{done}");
    let status = cluster.status("n2").expect("answers");
    assert_eq!((status.held, status.goal(), status.paused), (None, Some(*step), false), "held no longer");
    assert_eq!(status.switch.and_then(|s| s.left), Some(*goal), "as an order for what is older is one");
    story.go_on();
    // The other host follows, as after any rollback from its generation.
    story.ends(*step, *step);
    assert!(told(cluster, "n2", "return").iter().any(|d| d.contains(&format!("from generation {goal} to {step}"))));
}

#[test]
fn a_host_cancelled_in_steps_rolls_back_with_the_others() {
    let story = Story::begin();
    let Story { cluster, goal, .. } = &story;
    let before = GenerationNumber(goal.0 - 1);
    let body = format!("{{\"generation\":{goal},\"on_failure\":\"rollback\",\"who\":\"ann\"}}");
    let done = order(cluster, "n2", "cancel", &body);
    let to = format!("rolling back to generation {before}");
    assert!(done["detail"].as_str().is_some_and(|d| d.contains(&to)), "{done}");
    story.go_on();
    story.ends(before, before);
    for host in ["n1", "n2"] {
        let status = cluster.status(host).expect("answers");
        assert_eq!((status.withdrawn, status.held), (vec![*goal], None), "{host}");
    }
}

#[test]
fn a_switch_in_steps_is_planned_and_recorded_as_one_switch() {
    let hosts = ["n1", "n2"];
    let mut cluster = cluster(&hosts);
    let one = publish(&mut cluster, 1);
    cluster.bring_up(one, PATIENCE);
    let between: Vec<_> = (2..=6).map(|number| publish(&mut cluster, number)).collect();
    let goal = publish(&mut cluster, 8);
    let (code, said) = run(cobctl(&cluster, &hosts, &["plan", "latest"]));
    let step = between
        .iter()
        .find(|step| said.contains(&format!("in steps through {step}: there is no direct switch order")))
        .copied();
    let step = step.unwrap_or_else(|| panic!("{code}: {said}"));
    assert!(code == 0 && said.contains(&format!("  generation {step}\n")), "{said}");
    let plan = cobctl(&cluster, &hosts, &["plan", "latest", "--json"]).output().expect("runs").stdout;
    let file = cluster.path("plan.json");
    fs::write(&file, plan).expect("written");

    let (code, said) = run(cobctl(&cluster, &hosts, &["switch", &goal.to_string(), "--wait", "60s"]));
    assert_eq!(code, 0, "{said}");
    for host in hosts {
        let goes: Vec<String> = told(&cluster, host, "go").into_iter().skip(1).collect();
        let ways = [format!("to generation {step}, by "), format!("to generation {goal}, by ")];
        assert!(goes.len() == 2 && goes.iter().zip(&ways).all(|(go, way)| go.starts_with(way)), "{host}: {goes:?}");
    }
    let (code, said) = run(cobctl(&cluster, &hosts, &["outcomes", "--json"]));
    let told: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let all = told["outcomes"].as_array().expect("outcomes");
    let (to, from) = (all.iter().map(|o| o["to"].as_u64()), &all[1]["hosts"]["n2"]["from"]);
    assert_eq!(to.collect::<Vec<_>>(), [Some(one.0), Some(goal.0)], "{code}: {said}");
    assert_eq!((code, from.as_u64()), (0, Some(one.0)), "{said}");
    assert!(all[1]["by"].as_str().is_some_and(|by| !by.is_empty()), "{said}");
    let (code, said) = run(cobctl(&cluster, &hosts, &["replay", &goal.to_string()]));
    assert!(code == 0 && said.contains(&format!("to generation {step}, by ")), "{said}");
    let file = file.to_str().expect("text");
    let (code, said) = run(cobctl(&cluster, &hosts, &["history", "--compare-plan", file]));
    assert!(code == 0 && !said.contains("unlike in the plan") && !said.contains("outside the plan"), "{said}");
}
