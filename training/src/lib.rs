//! The fleet simulator for Python: many fleets at once, stepped over NumPy buffers, and studies of what was learned.

mod env;
mod graph;

use std::path::Path;
use std::sync::Arc;

use env::{Env, Source};
use plimsoll_ratecontrol::learned::network::{INPUTS, Network};
use plimsoll_ratecontrol::{Controller as Rates, RateControl, Settings, State, learned};
use plimsoll_simulator::fleet::plan::Plan;
use plimsoll_simulator::fleet::random::{self, Ranges};
use plimsoll_simulator::fleet::run::{Driver, run_driver};
use plimsoll_simulator::fleet::service::Guards;
use plimsoll_simulator::fleet::study::study as run_study;
use plimsoll_simulator::parallel;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

fn wrong(why: String) -> PyErr {
    PyValueError::new_err(why)
}

/// Many fleets, stepped together. `source` is "graphs", "fleets" or the path of a scenario.
#[pyclass(unsendable)]
struct Fleets {
    envs: Vec<Env>,
    states: Vec<f32>,
    rewards: Vec<f32>,
    ended: Vec<u8>,
    shares: Vec<f32>,
    actions: Vec<f32>,
}

#[pymethods]
impl Fleets {
    #[new]
    fn new(source: &str, count: usize, seed: u64) -> PyResult<Fleets> {
        let source = match source {
            "graphs" => Source::Graphs,
            "fleets" => Source::Fleets,
            path => Source::Scenario(Plan::read(Path::new(path)).map_err(wrong)?.0),
        };
        let source = Arc::new(source);
        let envs = (0..count as u64).map(|stream| Env::new(Arc::clone(&source), seed, stream));
        Ok(Fleets {
            envs: envs.collect::<Result<_, _>>().map_err(wrong)?,
            states: vec![0.0; count * INPUTS],
            rewards: vec![0.0; count],
            ended: vec![0; count],
            shares: vec![0.0; count],
            actions: vec![0.0; count],
        })
    }

    #[classattr]
    const STEPS: u32 = env::STEPS;
    #[classattr]
    const INPUTS: usize = INPUTS;

    /// Whoever does not learn, where several are asked in a step, is answered by this network from now on.
    fn set_weights(&mut self, weights: &[u8]) -> PyResult<()> {
        let network = Arc::new(Network::read(weights).map_err(wrong)?);
        self.envs.iter_mut().for_each(|env| env.set_network(Arc::clone(&network)));
        Ok(())
    }

    /// Begins new episodes; writes a state each.
    fn reset(&mut self, py: Python<'_>, states: PyBuffer<f32>) -> PyResult<()> {
        self.envs.iter_mut().try_for_each(Env::reset).map_err(wrong)?;
        self.write_states(py, &states)
    }

    /// Takes an action each. Writes states, rewards, whether an episode ended, and then what share of the best its last fifth had; the
    /// state is that of the next one.
    fn step(
        &mut self,
        py: Python<'_>,
        actions: PyBuffer<f32>,
        states: PyBuffer<f32>,
        rewards: PyBuffer<f32>,
        ended: PyBuffer<u8>,
        shares: PyBuffer<f32>,
    ) -> PyResult<()> {
        actions.copy_to_slice(py, &mut self.actions)?;
        for (at, env) in self.envs.iter_mut().enumerate() {
            let outcome = env.step(f64::from(self.actions[at])).map_err(wrong)?;
            self.rewards[at] = outcome.reward as f32;
            self.ended[at] = u8::from(outcome.ended.is_some());
            self.shares[at] = outcome.ended.unwrap_or(0.0) as f32;
        }
        rewards.copy_from_slice(py, &self.rewards)?;
        ended.copy_from_slice(py, &self.ended)?;
        shares.copy_from_slice(py, &self.shares)?;
        self.write_states(py, &states)
    }
}

impl Fleets {
    fn write_states(&mut self, py: Python<'_>, states: &PyBuffer<f32>) -> PyResult<()> {
        for (place, env) in self.states.chunks_exact_mut(INPUTS).zip(&self.envs) {
            place.copy_from_slice(&env.state());
        }
        states.copy_from_slice(py, &self.states)
    }
}

fn settings(weights: &[u8], guarded: bool) -> PyResult<Settings> {
    let mut settings = learned::Settings::new(Network::read(weights).map_err(wrong)?);
    if !guarded {
        settings.guard = None;
    }
    Ok(Settings { controller: Rates::Learned(settings), ..Settings::default() })
}

fn share(plan: &Arc<Plan>, settings: &Settings, seed: u64) -> Result<f64, String> {
    let rates = Some(RateControl::new(settings.clone()));
    let mut driver = Driver::new(Arc::clone(plan), Guards::None, rates, seed);
    run_driver(&mut driver, "learned", seed).map(|report| report.share_of_optimum)
}

/// Shares of the optimum on the fleets of consecutive seeds, as `plimsoll fleet study` has them; without the model that looks on unless
/// `guarded`.
#[pyfunction]
#[pyo3(signature = (weights, seed, fleets, guarded, duration_s = 60.0))]
fn shares(
    py: Python<'_>,
    weights: &[u8],
    seed: u64,
    fleets: u64,
    guarded: bool,
    duration_s: f64,
) -> PyResult<Vec<f64>> {
    let settings = settings(weights, guarded)?;
    let ranges = Ranges { duration: plimsoll_core::Nanos::from_secs_f64(duration_s), ..Ranges::default() };
    let seeds: Vec<u64> = (seed..).take(fleets as usize).collect();
    let of = |&seed: &u64| {
        let plan = Plan::new(&random::fleet(seed, &ranges), Path::new(""))?;
        share(&Arc::new(plan), &settings, seed)
    };
    let shares = py.detach(|| parallel::map(&seeds, of));
    shares.into_iter().collect::<Result<_, _>>().map_err(wrong)
}

/// Shares of the optimum on a scenario under consecutive seeds.
#[pyfunction]
fn scenario_shares(
    py: Python<'_>,
    weights: &[u8],
    scenario: &str,
    seed: u64,
    runs: u64,
    guarded: bool,
) -> PyResult<Vec<f64>> {
    let settings = settings(weights, guarded)?;
    let plan = Arc::new(Plan::read(Path::new(scenario)).map_err(wrong)?.0);
    let seeds: Vec<u64> = (seed..).take(runs as usize).collect();
    let shares = py.detach(|| parallel::map(&seeds, |&seed| share(&plan, &settings, seed)));
    shares.into_iter().collect::<Result<_, _>>().map_err(wrong)
}

/// What `plimsoll fleet study` says of the controllers named: of each the shares of the optimum.
#[pyfunction]
fn study(
    py: Python<'_>,
    controllers: Vec<String>,
    seed: u64,
    fleets: usize,
    duration_s: f64,
) -> PyResult<Vec<Vec<f64>>> {
    let controllers =
        controllers.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let ranges = Ranges { duration: plimsoll_core::Nanos::from_secs_f64(duration_s), ..Ranges::default() };
    let outcomes = py.detach(|| run_study(&controllers, None, seed, fleets, &ranges, || {}));
    Ok(outcomes.map_err(wrong)?.into_iter().map(|outcome| outcome.shares).collect())
}

/// The action of a network at a state, by the code that runs in production.
#[pyfunction]
fn act(weights: &[u8], goodput: f64, latency: f64) -> PyResult<f64> {
    let network = Network::read(weights).map_err(wrong)?;
    Ok(network.act(&State { goodput, latency, rate_per_s: 1.0, offered_per_s: 1.0 }))
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Fleets>()?;
    module.add_function(wrap_pyfunction!(shares, module)?)?;
    module.add_function(wrap_pyfunction!(study, module)?)?;
    module.add_function(wrap_pyfunction!(scenario_shares, module)?)?;
    module.add_function(wrap_pyfunction!(act, module)?)
}
