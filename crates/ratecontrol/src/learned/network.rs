//! A small network: the state in, the action out. Written out by hand: a runtime would cost more than the network does.

use std::fmt;

use safetensors::{Dtype, SafeTensors};

use crate::stepwise::State;

/// What the network goes by.
pub const INPUTS: usize = 2;
/// How wide either hidden layer is.
const WIDTH: usize = 32;
/// More goodput than this part of the limits is what had waited, and tells no more.
const MOST_GOODPUT: f64 = 2.0;

/// What a network is told of a state: goodput over rate limits, and the logarithm of one and the latency in SLOs, so that the difference
/// between half an SLO and one is more than that between ten and eleven.
pub fn features(state: &State) -> [f32; INPUTS] {
    [state.goodput.clamp(f64::MIN, MOST_GOODPUT) as f32, state.latency.ln_1p() as f32]
}

/// Two hidden layers, and the range of what they were trained on.
#[derive(Clone, PartialEq)]
pub struct Network {
    low: [f32; INPUTS],
    high: [f32; INPUTS],
    first: [[f32; WIDTH]; INPUTS],
    first_bias: [f32; WIDTH],
    second: [[f32; WIDTH]; WIDTH],
    second_bias: [f32; WIDTH],
    last: [f32; WIDTH],
    last_bias: f32,
}

impl Network {
    /// The weights that come with Plimsoll, as a file.
    pub const BASE: &[u8] = include_bytes!("../../models/base.safetensors");

    /// The one that comes with Plimsoll.
    ///
    /// # Panics
    /// Never: a test reads it.
    pub fn base() -> Network {
        Network::read(Network::BASE).expect("the weights that are built in are whole")
    }

    /// Reads weights from a safetensors file, as `training/` writes them: of each layer a `kernel`, inputs by outputs, and a `bias`, and
    /// the range of the inputs in training. All are 32-bit floats. Other tensors are left alone.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn read(file: &[u8]) -> Result<Network, String> {
        let tensors =
            SafeTensors::deserialize(file).map_err(|e| format!("this is no safetensors file: {e}"))?;
        let matrix = |name: &str, shape: &[usize]| numbers(&tensors, name, shape);
        let network = Network {
            low: row(&matrix("inputs.low", &[INPUTS])?),
            high: row(&matrix("inputs.high", &[INPUTS])?),
            first: rows(&matrix("actor.0.kernel", &[INPUTS, WIDTH])?),
            first_bias: row(&matrix("actor.0.bias", &[WIDTH])?),
            second: rows(&matrix("actor.1.kernel", &[WIDTH, WIDTH])?),
            second_bias: row(&matrix("actor.1.bias", &[WIDTH])?),
            last: row(&matrix("actor.2.kernel", &[WIDTH, 1])?),
            last_bias: matrix("actor.2.bias", &[1])?[0],
        };
        if let Some(at) = (0..INPUTS).find(|&at| network.low[at] >= network.high[at]) {
            let (low, high) = (network.low[at], network.high[at]);
            return Err(format!(
                "input {at} ranges from {low} to {high}; `inputs.low` is to be below `inputs.high`"
            ));
        }
        Ok(network)
    }

    /// Whether it was trained on such as this.
    pub fn covers(&self, state: &State) -> bool {
        let within = |at: usize, value: f32| (self.low[at]..=self.high[at]).contains(&value);
        features(state).into_iter().enumerate().all(|(at, value)| within(at, value))
    }

    /// The action: what part of the rates to add or, where negative, to take away in a second. It is not clamped yet.
    pub fn act(&self, state: &State) -> f64 {
        self.forward(features(state)).into()
    }

    fn forward(&self, inputs: [f32; INPUTS]) -> f32 {
        let mut hidden = self.first_bias;
        for (value, weights) in inputs.into_iter().zip(&self.first) {
            add(&mut hidden, value, weights);
        }
        let hidden = hidden.map(soft_sign);
        let mut deeper = self.second_bias;
        for (value, weights) in hidden.into_iter().zip(&self.second) {
            add(&mut deeper, value, weights);
        }
        let deeper = deeper.map(soft_sign);
        self.last_bias + deeper.into_iter().zip(self.last).map(|(value, weight)| value * weight).sum::<f32>()
    }
}

/// Not the weights: there are a thousand.
impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = (self.low, self.high);
        f.debug_struct("Network").field("low", &low).field("high", &high).finish_non_exhaustive()
    }
}

fn add(sums: &mut [f32; WIDTH], value: f32, weights: &[f32; WIDTH]) {
    sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += value * weight);
}

/// As flat at the ends as a hyperbolic tangent, at a tenth of its price.
fn soft_sign(value: f32) -> f32 {
    value / (1.0 + value.abs())
}

fn numbers(tensors: &SafeTensors<'_>, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
    let tensor = tensors.tensor(name).map_err(|_| format!("there is no tensor `{name}`"))?;
    if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
        let (dtype, is) = (tensor.dtype(), tensor.shape());
        return Err(format!("tensor `{name}` is {dtype:?} {is:?}; it is to be F32 {shape:?}"));
    }
    let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
    let numbers: Vec<f32> = tensor.data().as_chunks().0.iter().map(number).collect();
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err(format!("tensor `{name}` holds what is no finite number"));
    }
    Ok(numbers)
}

fn row<const N: usize>(numbers: &[f32]) -> [f32; N] {
    std::array::from_fn(|at| numbers[at])
}

fn rows<const N: usize, const M: usize>(numbers: &[f32]) -> [[f32; N]; M] {
    std::array::from_fn(|at| row(&numbers[at * N..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States and actions as the training package computed them from the same file.
    const VECTORS: &str = include_str!("../../models/vectors.csv");

    fn state(goodput: f64, latency: f64) -> State {
        State { goodput, latency, rate_per_s: 100.0, offered_per_s: 200.0 }
    }

    #[test]
    fn acts_as_it_did_in_training() {
        let network = Network::base();
        let lines: Vec<Vec<f64>> = VECTORS
            .lines()
            .skip(1)
            .map(|line| line.split(',').map(|n| n.parse().unwrap()).collect())
            .collect();
        assert!(lines.len() >= 100);
        for line in &lines {
            let action = network.act(&state(line[0], line[1]));
            assert!((action - line[2]).abs() < 2e-6, "{line:?}: {action}");
        }
        let actions = lines.iter().map(|line| line[2]);
        let (low, high) = (actions.clone().fold(f64::MAX, f64::min), actions.fold(f64::MIN, f64::max));
        assert!(low < -0.2 && high > 0.02, "it both lowers and raises: {low}..{high}");
    }

    #[test]
    fn knows_what_it_was_trained_on() {
        let network = Network::base();
        assert!(network.covers(&state(1.0, 0.5)) && network.covers(&state(0.0, 2.0)));
        assert!(network.covers(&state(1e9, 0.5)), "more than all that is let in is what had waited");
        for (goodput, latency) in
            [(0.5, 1e3), (f64::NAN, 0.5), (0.5, f64::NAN), (-1.0, 0.5), (0.5, f64::INFINITY)]
        {
            assert!(!network.covers(&state(goodput, latency)), "{goodput} {latency}");
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_file() {
        let why = |file: &[u8]| Network::read(file).unwrap_err();
        assert!(why(b"nothing").contains("no safetensors file"));
        let renamed = |from: &str, to: &str| {
            let at = Network::BASE.windows(from.len()).position(|bytes| bytes == from.as_bytes()).unwrap();
            let mut file = Network::BASE.to_vec();
            file[at..at + from.len()].copy_from_slice(to.as_bytes());
            why(&file)
        };
        assert_eq!(renamed("actor.1.bias", "actor.1.bios"), "there is no tensor `actor.1.bias`");
        let mut broken = Network::BASE.to_vec();
        let end = broken.len();
        for bytes in broken[end - 4 * 2_000..].as_chunks_mut::<4>().0 {
            *bytes = f32::NAN.to_le_bytes();
        }
        assert!(why(&broken).contains("no finite number"));
    }
}
