//! Breadth-first search of all states of a model: the shortest way to each fault, and states from which a goal is out
//! of reach.

use anyhow::{Result, bail};
use std::{collections::HashMap, fmt::Debug, hash::Hash};

/// The steps that a state allows, each with the next state, or with the claim that the step violates.
pub type Successors<Step, State> = Vec<(Step, Result<State, &'static str>)>;

/// A finite transition system.
pub trait Model {
    /// A state, compared as a whole.
    type State: Clone + Eq + Hash;
    /// What leads from one state to the next.
    type Step: Copy + Debug;
    /// The first state.
    fn start(&self) -> Self::State;
    /// All successors of a state, or what a step violates.
    fn next(&self, state: &Self::State) -> Successors<Self::Step, Self::State>;
    /// Whether a step is a change from outside, which progress must not depend on.
    fn is_change(&self, step: Self::Step) -> bool;
    /// What must stay reachable without changes from outside.
    fn is_goal(&self, state: &Self::State) -> bool;
}

/// Number of states and steps of a complete search.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    /// Different states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
}

/// Explores all states. The error has the steps to the first fault.
///
/// # Errors
/// A step violates a claim, the goal cannot be reached from a state, or there are more than `limit` states.
pub fn search<M: Model>(model: &M, limit: usize) -> Result<Explored> {
    let mut states = vec![model.start()];
    let mut number = HashMap::from([(model.start(), 0_u32)]);
    let mut parents: Vec<Option<(u32, M::Step)>> = vec![None];
    // Backward steps that are not changes.
    let mut back: Vec<(u32, u32)> = Vec::new();
    let mut steps = 0;
    let mut at = 0;
    while at < states.len() {
        let from = u32::try_from(at)?;
        for (step, next) in model.next(&states[at].clone()) {
            steps += 1;
            let next = match next {
                Ok(next) => next,
                Err(claim) => bail!("{claim}:\n{}  {step:?}", trace::<M>(&parents, from)),
            };
            let fresh = u32::try_from(states.len())?;
            let to = *number.entry(next.clone()).or_insert(fresh);
            if to == fresh {
                states.push(next);
                parents.push(Some((from, step)));
            }
            if !model.is_change(step) {
                back.push((to, from));
            }
        }
        if states.len() > limit {
            bail!("more than {limit} states");
        }
        at += 1;
    }
    match stuck(model, &states, back) {
        Some(state) => bail!("liveness: no way back to the fast path:\n{}", trace::<M>(&parents, state)),
        None => Ok(Explored { states: states.len(), steps }),
    }
}

/// The first state from which no goal can be reached.
fn stuck<M: Model>(model: &M, states: &[M::State], mut back: Vec<(u32, u32)>) -> Option<u32> {
    back.sort_unstable();
    let mut reaches: Vec<bool> = states.iter().map(|state| model.is_goal(state)).collect();
    let mut todo: Vec<u32> = (0..).zip(&reaches).filter_map(|(at, goal)| goal.then_some(at)).collect();
    while let Some(to) = todo.pop() {
        let first = back.partition_point(|step| step.0 < to);
        for (_, from) in back[first..].iter().take_while(|step| step.0 == to) {
            if !std::mem::replace(&mut reaches[*from as usize], true) {
                todo.push(*from);
            }
        }
    }
    (0..).zip(reaches).find_map(|(at, reaches)| (!reaches).then_some(at))
}

/// The steps that lead to a state, one a line.
fn trace<M: Model>(parents: &[Option<(u32, M::Step)>], mut at: u32) -> String {
    let mut lines = Vec::new();
    while let Some((from, step)) = parents[at as usize] {
        lines.push(format!("  {step:?}\n"));
        at = from;
    }
    lines.into_iter().rev().collect()
}
