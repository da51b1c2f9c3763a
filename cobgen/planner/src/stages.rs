//! Loom's stages: independent jobs run together, and a stage ends before the next begins.

use std::collections::BTreeSet;

use crate::plan::Step;

/// The jobs by the length of the longest path to them; gates do not count.
pub(crate) fn levels(steps: &[Step]) -> Vec<Vec<usize>> {
    let mut level = vec![0; steps.len()];
    for at in in_order(steps) {
        let before = steps[at].after.iter().map(|b| level[*b] + usize::from(steps[*b].job.is_some()));
        level[at] = before.max().unwrap_or(0);
    }
    let count = steps.iter().zip(&level).filter(|(s, _)| s.job.is_some()).map(|(_, l)| l + 1).max().unwrap_or(0);
    let mut levels = vec![Vec::new(); count];
    for (at, step) in steps.iter().enumerate() {
        if step.job.is_some() {
            levels[level[at]].push(at);
        }
    }
    levels
}

/// Divides each level into stages in which no node occurs twice.
pub(crate) fn divided(levels: &[Vec<usize>], steps: &[Step]) -> Vec<Vec<usize>> {
    let mut stages = Vec::new();
    for level in levels {
        let mut parts: Vec<(BTreeSet<&str>, Vec<usize>)> = Vec::new();
        for at in level {
            let Some(job) = &steps[*at].job else { continue };
            match parts.iter_mut().find(|(nodes, _)| !nodes.contains(job.node.as_str())) {
                Some((nodes, part)) => {
                    nodes.insert(&job.node);
                    part.push(*at);
                }
                None => parts.push((BTreeSet::from([job.node.as_str()]), vec![*at])),
            }
        }
        stages.extend(parts.into_iter().map(|(_, part)| part));
    }
    stages
}

/// All steps in topological order.
pub(crate) fn in_order(steps: &[Step]) -> Vec<usize> {
    let mut waits: Vec<usize> = steps.iter().map(|s| s.after.len()).collect();
    let mut followers = vec![Vec::new(); steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for before in &step.after {
            followers[*before].push(at);
        }
    }
    let mut order: Vec<usize> = (0..steps.len()).filter(|at| waits[*at] == 0).collect();
    let mut next = 0;
    while let Some(at) = order.get(next).copied() {
        next += 1;
        for follower in &followers[at] {
            waits[*follower] -= 1;
            if waits[*follower] == 0 {
                order.push(*follower);
            }
        }
    }
    assert_eq!(
        order.len(),
        steps.len(),
        "services with circular dependencies were refused, and chains have no circles"
    );
    order
}
