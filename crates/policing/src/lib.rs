//! Policing: which classes pass the gate, and how many of their requests?
//!
//! In a flash crowd of ten times the capacity even looking at every request closely is too much. What this crate decides is decided
//! for many requests at once, by importance and by size (Cataclysm, sections 3.1 to 3.5). Nothing here reads a clock or draws
//! randomness of its own.
//!
//! | part | does | from |
//! | --- | --- | --- |
//! | [`police`] | all of it, for one pool | Fig. 2 |
//! | [`minimum`] | lets in what each class was promised, untested | section 3.1 |
//! | [`batch`] | tests all waiting requests of a class and size at once | section 3.2, Eq. 3-4 |
//! | [`sizes`] | the buckets that it sorts them into | section 3.2 |
//! | `queue` | what holds those in a bucket, in pieces that all buckets share | |
//! | [`delays`] | how long lesser classes wait for more important ones | section 3.4, Eq. 7-13 |
//! | [`threshold`] | lets in whole classes, the small requests of the next, and a share of those of one size | section 3.3, Eq. 5-6 |
//! | [`switch`] | chooses between the two by the sentry's own load | section 3.3 |
//! | [`inherent`] | what a request of a kind needs | section 3.2, Eq. 2, and 3.5 |
//! | [`rates`] | how fast each class arrives | section 3.5 |

pub mod batch;
pub mod delays;
pub mod inherent;
pub mod minimum;
pub mod police;
mod queue;
pub mod rates;
pub mod sizes;
pub mod switch;
pub mod threshold;
