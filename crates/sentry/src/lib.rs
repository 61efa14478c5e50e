//! sentry
