//! A stock Apache httpd and a stock php-fpm to overload: private servers, with pages that are handed to them.

mod install;

pub mod fpm;
pub mod httpd;
pub mod site;

pub use fpm::Fpm;
pub use httpd::Httpd;
pub use install::there_is_none;
pub use site::{Php, Site};
