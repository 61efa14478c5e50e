//! From a request to its class: the first match in the order of the file wins, found without trying them all.

use std::borrow::Cow;

use http::HeaderName;

use crate::ClassId;
use crate::config::{Class, Match, PathPattern, Segment};

/// Finds the class of a request. Immutable, shared by all threads; a call allocates nothing.
///
/// Path patterns are kept in a tree of segments, so that only those that fit the path are looked at. What has no path
/// pattern is looked at always.
#[derive(Clone, Debug)]
pub struct Classifier {
    rules: Vec<Rule>,
    /// Indices of rules without a path pattern, rising.
    pathless: Vec<usize>,
    /// Indices of rules that go by a header, rising.
    by_header: Vec<usize>,
    root: Node,
    default: ClassId,
}

/// One match of the config. Its index is its place in the file.
#[derive(Clone, Debug)]
struct Rule {
    class: ClassId,
    pattern: Match,
}

/// What fits after the segments that lead here. All indices are of rules, and rise.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Children by literal segment, sorted.
    literals: Vec<(String, Node)>,
    /// The child for any segment that is not empty.
    param: Option<Box<Node>>,
    /// Patterns that end here.
    closed: Vec<usize>,
    /// Patterns that take all below here.
    open: Vec<usize>,
    /// The first rule in this part of the tree.
    first: usize,
}

/// What a request is recognised by.
struct Request<'a, F> {
    method: &'a str,
    host: &'a str,
    header: F,
}

impl Classifier {
    /// Prepares the classes of a config, whose last one is `default`.
    ///
    /// # Panics
    /// Without any class, or with more than [`MAX_CLASSES`](crate::MAX_CLASSES); no config has either.
    pub fn new(classes: &[Class]) -> Classifier {
        assert!((1..=crate::MAX_CLASSES).contains(&classes.len()), "{} classes", classes.len());
        let id = |index: usize| ClassId(index as u16);
        let mut classifier = Classifier {
            rules: Vec::new(),
            pathless: Vec::new(),
            by_header: Vec::new(),
            root: Node::default(),
            default: id(classes.len() - 1),
        };
        for (index, class) in classes.iter().enumerate() {
            for pattern in &class.matches {
                classifier.add(Rule { class: id(index), pattern: pattern.clone() });
            }
        }
        classifier
    }

    fn add(&mut self, rule: Rule) {
        let index = self.rules.len();
        match path_of(&rule.pattern) {
            Some(path) => self.root.add(&path, index),
            None => self.pathless.push(index),
        }
        if rule.pattern.header.is_some() {
            self.by_header.push(index);
        }
        self.rules.push(rule);
    }

    /// The class of a request: its method, its path without the query, its host (a port does not count), and how to
    /// look up the first value of a header.
    pub fn classify<'r>(
        &self,
        method: &str,
        path: &str,
        host: &str,
        header: impl Fn(&HeaderName) -> Option<&'r [u8]>,
    ) -> ClassId {
        self.recognise(method, path, host, header).0
    }

    /// As [`Classifier::classify`], and the path pattern by which the request was recognised, if the match has one.
    pub fn recognise<'r>(
        &self,
        method: &str,
        path: &str,
        host: &str,
        header: impl Fn(&HeaderName) -> Option<&'r [u8]>,
    ) -> (ClassId, Option<&PathPattern>) {
        let rule = self.rules.get(self.first(path, &Request { method, host, header }));
        rule.map_or((self.default, None), |rule| (rule.class, rule.pattern.path.as_ref()))
    }

    /// The classes that a request may be of whose headers are not known, but whether it is gRPC is: first, in the order of the file, those
    /// that it is of with some header, and last the one that it is of otherwise.
    pub fn candidates(&self, method: &str, path: &str, host: &str, is_grpc: bool) -> Vec<ClassId> {
        let grpc = |name: &HeaderName| {
            (is_grpc && *name == http::header::CONTENT_TYPE).then_some(&b"application/grpc"[..])
        };
        let request = Request { method, host, header: grpc };
        let otherwise = self.first(path, &request);
        let last = self.rules.get(otherwise).map_or(self.default, |rule| rule.class);
        let before =
            self.by_header.iter().take_while(|&&rule| rule < otherwise).map(|&rule| &self.rules[rule]);
        let mut classes = Vec::new();
        for Rule { class, pattern } in before {
            let may_fit =
                request.fits_beside_headers(pattern) && path_of(pattern).is_none_or(|of| of.fits(path));
            if may_fit && *class != last && !classes.contains(class) {
                classes.push(*class);
            }
        }
        classes.push(last);
        classes
    }

    /// The first rule that a request fits; as many as there are where it fits none.
    fn first<'r, F>(&self, path: &str, request: &Request<'_, F>) -> usize
    where
        F: Fn(&HeaderName) -> Option<&'r [u8]>,
    {
        let mut best = self.rules.len();
        self.first_of(&self.pathless, request, &mut best);
        if let Some(rest) = path.strip_prefix('/') {
            self.descend(&self.root, Some(rest), request, &mut best);
        }
        best
    }

    /// Lowers `best` to the first rule below this node that fits. `rest` is the path after the node's slash, or nothing
    /// where the path ends at the node.
    fn descend<'r, F>(&self, node: &Node, rest: Option<&str>, request: &Request<'_, F>, best: &mut usize)
    where
        F: Fn(&HeaderName) -> Option<&'r [u8]>,
    {
        if node.first >= *best {
            return;
        }
        let Some(rest) = rest else { return self.first_of(&node.closed, request, best) };
        self.first_of(&node.open, request, best);
        let (part, rest) = match rest.split_once('/') {
            Some((part, rest)) => (part, Some(rest)),
            None => (rest, None),
        };
        if let Ok(child) = node.literals.binary_search_by(|(literal, _)| literal.as_str().cmp(part)) {
            self.descend(&node.literals[child].1, rest, request, best);
        }
        if let Some(child) = node.param.as_deref().filter(|_| !part.is_empty()) {
            self.descend(child, rest, request, best);
        }
    }

    /// Lowers `best` to the first of these rules whose path is known to fit and which fits else.
    fn first_of<'r, F>(&self, rules: &[usize], request: &Request<'_, F>, best: &mut usize)
    where
        F: Fn(&HeaderName) -> Option<&'r [u8]>,
    {
        let before = rules.iter().copied().take_while(|&rule| rule < *best);
        if let Some(rule) =
            before.into_iter().find(|&rule| request.fits_beside_path(&self.rules[rule].pattern))
        {
            *best = rule;
        }
    }
}

impl Node {
    fn add(&mut self, path: &PathPattern, rule: usize) {
        let mut node = self;
        for segment in &path.segments {
            // Rules come in the order of the file: whoever made the node is its first.
            let child = || Node { first: rule, ..Node::default() };
            node = match segment {
                Segment::Param => node.param.get_or_insert_with(|| Box::new(child())),
                Segment::Literal(text) => {
                    let place = node.literals.binary_search_by(|(literal, _)| literal.cmp(text));
                    let place = place.unwrap_or_else(|place| {
                        node.literals.insert(place, (text.clone(), child()));
                        place
                    });
                    &mut node.literals[place].1
                }
            };
        }
        if path.open { node.open.push(rule) } else { node.closed.push(rule) }
    }
}

impl<'r, F: Fn(&HeaderName) -> Option<&'r [u8]>> Request<'_, F> {
    fn fits_beside_path(&self, pattern: &Match) -> bool {
        self.fits_beside_headers(pattern)
            && pattern.header.as_ref().is_none_or(|header| {
                (self.header)(&header.name).is_some_and(|value| header.value.fits(value))
            })
    }

    /// Whether it fits in all but its path and its headers.
    fn fits_beside_headers(&self, pattern: &Match) -> bool {
        pattern.method.as_ref().is_none_or(|method| method.as_str() == self.method)
            && pattern.host.as_ref().is_none_or(|host| host.fits(self.host))
            && (pattern.grpc.is_none() || self.is_grpc())
    }

    fn is_grpc(&self) -> bool {
        let content_type = (self.header)(&http::header::CONTENT_TYPE);
        self.method == "POST" && content_type.is_some_and(is_grpc)
    }
}

/// The paths of requests that fit, where not all do.
fn path_of(pattern: &Match) -> Option<Cow<'_, PathPattern>> {
    let grpc = pattern.grpc.as_ref().map(|grpc| Cow::Owned(grpc.path()));
    grpc.or(pattern.path.as_ref().map(Cow::Borrowed))
}

/// Whether a content type is gRPC's: `application/grpc`, perhaps with a codec or parameters, but not `grpc-web`.
pub fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, parse};
    use proptest::prelude::*;

    type Headers<'a> = &'a [(&'a str, &'a str)];

    fn classes(text: &str) -> Vec<Class> {
        let text = format!("[pool.p]\nservers = [\"a:1\"]\n{text}");
        parse::<Config>(&text, "test.toml").unwrap_or_else(|errors| panic!("{errors}")).0.classes
    }

    fn class_of(classes: &[Class], method: &str, path: &str, host: &str, headers: Headers<'_>) -> String {
        let header = |name: &HeaderName| {
            headers.iter().find(|(key, _)| name == key).map(|(_, value)| value.as_bytes())
        };
        let id = Classifier::new(classes).classify(method, path, host, header);
        classes[id.index()].name.clone()
    }

    #[test]
    fn all_fields_of_a_match_must_fit() {
        let classes = classes(
            r#"
            [class.checkout]
            match = [{ method = "POST", path = "/cart/{id}/checkout", host = "shop.example" }]
            [class.free]
            match = [{ header = { name = "x-tier", value = "free" } }, { header = { name = "X-Trial" } }]
            [class.beta]
            match = [{ path = "/beta/*", header = { name = "user-agent", value = "curl/*" } }]
            "#,
        );
        let class = |method, path, host, headers| class_of(&classes, method, path, host, headers);
        assert_eq!(class("POST", "/cart/7/checkout", "shop.example:80", &[]), "checkout");
        assert_eq!(class("GET", "/cart/7/checkout", "shop.example", &[]), "default");
        assert_eq!(class("POST", "/cart/7/checkout", "other.example", &[]), "default");
        assert_eq!(class("GET", "/", "", &[("x-tier", "free")]), "free");
        assert_eq!(class("GET", "/", "", &[("x-tier", "freeride")]), "default");
        assert_eq!(class("GET", "/", "", &[("x-trial", "")]), "free");
        assert_eq!(class("GET", "/beta/a", "", &[("user-agent", "curl/8")]), "beta");
        assert_eq!(class("GET", "/beta/a", "", &[("user-agent", "wget")]), "default");
        assert_eq!(class("OPTIONS", "*", "", &[]), "default");
    }

    #[test]
    fn the_pattern_is_told_by_which_a_request_was_recognised() {
        let classes = classes(
            "[class.product]\nmatch = [{ path = \"/product/{id}\" }, { method = \"PUT\" }]\n\
             [class.cart]\nmatch = [{ grpc = \"shop.Cart/*\" }]",
        );
        let classifier = Classifier::new(&classes);
        let found = |method, path| {
            let (class, pattern) = classifier.recognise(method, path, "", |_| Some(b"application/grpc"));
            (&*classes[class.index()].name, pattern == classes[0].matches[0].path.as_ref(), pattern.is_none())
        };
        assert_eq!(found("PUT", "/product/17"), ("product", true, false));
        assert_eq!(found("PUT", "/other"), ("product", false, true));
        assert_eq!(found("POST", "/shop.Cart/Add"), ("cart", false, true), "its path is its method's name");
        assert_eq!(found("GET", "/other"), ("default", false, true));
    }

    #[test]
    fn a_request_whose_headers_are_not_known_may_be_of_several_classes() {
        let classes = classes(
            r#"
            [class.gold]
            match = [{ header = { name = "x-tier", value = "gold" } }]
            [class.admin]
            match = [{ path = "/admin/*", header = { name = "x-admin" } }, { path = "/admin/users", header = { name = "x-root" } }]
            [class.inner]
            match = [{ host = "in.example", header = { name = "x-admin" } }, { host = "in.example", path = "/inner" }]
            [class.users]
            match = [{ method = "GET", path = "/admin/{what}" }]
            [class.late]
            match = [{ header = { name = "x-late" } }, { path = "/late" }]
            [class.add]
            match = [{ grpc = "shop.Cart/Add", header = { name = "x-add" } }]
            "#,
        );
        let classifier = Classifier::new(&classes);
        let in_host = |method, path, host, is_grpc| {
            let classes = classifier
                .candidates(method, path, host, is_grpc)
                .into_iter()
                .map(|id| &*classes[id.index()].name);
            classes.collect::<Vec<_>>().join(" ")
        };
        let of = |method, path, is_grpc| in_host(method, path, "", is_grpc);
        assert_eq!(of("GET", "/admin/users", false), "gold admin users");
        assert_eq!(in_host("GET", "/admin/users", "in.example", false), "gold admin inner users");
        assert_eq!(in_host("GET", "/inner", "in.example", false), "gold inner");
        assert_eq!(of("GET", "/inner", false), "gold late default");
        assert_eq!(of("PUT", "/admin/users", false), "gold admin late default");
        assert_eq!(of("GET", "/late", false), "gold late", "by its path or by a header");
        assert_eq!(of("POST", "/shop.Cart/Add", true), "gold late add default");
        assert_eq!(of("POST", "/shop.Cart/Add", false), "gold late default");
        assert_eq!(of("GET", "*", false), "gold late default");
    }

    #[test]
    fn grpc_is_told_by_path_method_and_content_type() {
        let classes = classes(
            "[class.add]\nmatch = [{ grpc = \"shop.Cart/Add\" }]\n[class.cart]\nmatch = [{ grpc = \"shop.Cart/*\" }]",
        );
        let class = |method, path, kind| class_of(&classes, method, path, "", &[("content-type", kind)]);
        assert_eq!(class("POST", "/shop.Cart/Add", "application/grpc"), "add");
        assert_eq!(class("POST", "/shop.Cart/List", "application/grpc+proto"), "cart");
        assert_eq!(class("POST", "/shop.Cart/Add", "application/grpc-web"), "default");
        assert_eq!(class("POST", "/shop.Cart/Add", "application/json"), "default");
        assert_eq!(class("GET", "/shop.Cart/Add", "application/grpc"), "default");
    }

    #[test]
    fn the_first_in_the_file_wins_wherever_the_tree_holds_it() {
        let first = |one: &str, two: &str| {
            let text = format!("[class.one]\nmatch = [{{ {one} }}]\n[class.two]\nmatch = [{{ {two} }}]");
            class_of(&classes(&text), "GET", "/a/b", "h", &[])
        };
        let fitting = [
            "path = \"/a/b\"",
            "path = \"/a/{x}\"",
            "path = \"/*\"",
            "path = \"/{x}/*\"",
            "method = \"GET\"",
            "host = \"h\"",
        ];
        for one in fitting {
            for two in fitting {
                assert_eq!(first(one, two), "one", "{one} before {two}");
            }
            assert_eq!(first("path = \"/a\"", one), "two", "{one}");
        }
    }

    /// What the tree is held to: try everything in the order of the file.
    fn naive(classes: &[Class], method: &str, path: &str) -> ClassId {
        let request = Request { method, host: "", header: |_: &HeaderName| None };
        let fits = |pattern: &Match| {
            pattern.path.as_ref().is_none_or(|p| p.fits(path)) && request.fits_beside_path(pattern)
        };
        let found = classes.iter().position(|class| class.matches.iter().any(fits));
        ClassId(found.unwrap_or(classes.len() - 1) as u16)
    }

    fn path_pattern() -> impl Strategy<Value = String> {
        let segment = prop::sample::select(vec!["a", "b", "{x}", ""]);
        let end = prop::sample::select(vec!["", "/*", "/{rest...}"]);
        (prop::collection::vec(segment, 0..4), end).prop_map(|(parts, end)| {
            let path = parts.iter().map(|part| format!("/{part}")).collect::<String>() + end;
            if path.is_empty() { "/".to_owned() } else { path }
        })
    }

    proptest! {
        #[test]
        fn the_tree_answers_as_the_scan_does(
            rules in prop::collection::vec((prop::option::of(path_pattern()), prop::option::of("GET|POST")), 1..40),
            requests in prop::collection::vec(("GET|POST|PUT", "(/(a|b|c|)){0,5}|\\*|a"), 1..40),
        ) {
            let mut text = String::new();
            for (i, (path, method)) in rules.iter().enumerate() {
                let path = path.as_ref().map(|p| format!("path = \"{p}\","));
                let method = method.as_ref().map(|m| format!("method = \"{m}\","));
                let host = if path.is_none() && method.is_none() { "host = \"x\"" } else { "" };
                let fields = format!("{}{}{host}", path.unwrap_or_default(), method.unwrap_or_default());
                // Two matches a class, so that rules and classes differ.
                if i % 2 == 0 {
                    text += &format!("[class.c{i}]\nmatch = [{{ {fields} }}");
                } else {
                    text += &format!(", {{ {fields} }}]\n");
                }
            }
            if rules.len() % 2 == 1 {
                text += "]\n";
            }
            let classes = classes(&text);
            let classifier = Classifier::new(&classes);
            for (method, path) in &requests {
                let class = classifier.classify(method, path, "", |_| None);
                prop_assert_eq!(class, naive(&classes, method, path), "{} {}", method, path);
            }
        }
    }
}
