//! What ours is measured against (section 5.2): four ways not to cancel whoever is to blame. Each is written from what its own paper
//! says, with its own constants where it gives them, and held to what the paper on ATROPOS measured of it: never to ours.
//!
//! | baseline | does | orders |
//! | --- | --- | --- |
//! | [`Protego`] | gives up those who wait for a lock in vain, admits no more than pays | Drop |
//! | [`Pbox`] | lets those pause who make others wait | Delay |
//! | [`Darc`] | keeps workers free for short requests | Cap |
//! | [`Parties`] | moves resources from class to class, a step of one resource at a time | Cap |

mod darc;
mod late;
mod parties;
mod pbox;
mod protego;

pub use darc::Darc;
pub use parties::Parties;
pub use pbox::Pbox;
pub use protego::Protego;
