//! Whose servers they are: several applications share one pool so that the revenue of all together is greatest (Cataclysm, section
//! 4.1). What an application earns with one server more is its marginal revenue; where that falls with every server, giving each
//! server to whom it earns most is best. It need not fall: the first server that fits a big class earns more than the one before it.
//! So the best division is found outright, application by application, over all numbers of servers that are left.

/// One application.
#[derive(Clone, Debug)]
pub struct Application {
    /// What it earns a second with so many servers, from none on; more servers than listed earn no more.
    pub revenue: Vec<f64>,
    /// The fewest servers it may have.
    pub least: usize,
    /// The most.
    pub most: usize,
}

impl Application {
    /// What it may have at most: never less than what it must.
    fn most(&self) -> usize {
        self.most.max(self.least)
    }

    /// What it earns a second with so many.
    pub fn earns(&self, servers: usize) -> f64 {
        self.revenue.get(servers).or(self.revenue.last()).copied().unwrap_or(0.0)
    }
}

/// How many of `servers` each application gets. Of divisions that earn the same it is one with the fewest servers in use, the
/// rest staying free. Takes time in the order of applications times servers squared.
///
/// # Errors
/// The applications' least numbers are more than there are: how many that would be.
pub fn divide(applications: &[Application], servers: usize) -> Result<Vec<usize>, usize> {
    let least: usize = applications.iter().map(|a| a.least).sum();
    if least > servers {
        return Err(least);
    }
    // best[n]: what the applications so far earn with n servers in use, and what each of them then has, one row an application.
    let mut best = vec![f64::NEG_INFINITY; servers + 1];
    best[0] = 0.0;
    let mut given = Vec::with_capacity(applications.len());
    for application in applications {
        let mut next = vec![f64::NEG_INFINITY; servers + 1];
        let mut gets = vec![0; servers + 1];
        for own in application.least..=application.most().min(servers) {
            let earns = application.earns(own);
            for others in 0..=servers - own {
                if best[others] + earns > next[others + own] {
                    next[others + own] = best[others] + earns;
                    gets[others + own] = own;
                }
            }
        }
        best = next;
        given.push(gets);
    }
    // The first of the greatest: no more servers in use than it takes. Rounding is no revenue.
    let most = best.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let Some(mut left) = best.iter().position(|&b| b >= most - most.abs() * 1e-12) else { return Err(least) };
    let mut shares: Vec<usize> = given
        .iter()
        .rev()
        .map(|gets| {
            let own = gets[left];
            left -= own;
            own
        })
        .collect();
    shares.reverse();
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All divisions, one by one.
    fn brute_force(applications: &[Application], servers: usize) -> f64 {
        let Some((first, rest)) = applications.split_first() else { return 0.0 };
        let with = |own| first.earns(own) + brute_force(rest, servers - own);
        (first.least..=first.most().min(servers)).map(with).fold(f64::NEG_INFINITY, f64::max)
    }

    prop_compose! {
        fn applications()(
            revenue in prop::collection::vec(0.0f64..100.0, 1..9), least in 0usize..3, more in 0usize..8,
        ) -> Application {
            // Steps of any height, upwards: marginal revenue rises and falls.
            let revenue = revenue.iter().scan(0.0, |sum, step| { *sum += step; Some(*sum) }).collect();
            Application { revenue, least, most: least + more }
        }
    }

    proptest! {
        #[test]
        fn nothing_earns_more(applications in prop::collection::vec(applications(), 1..4), servers in 0usize..12) {
            match divide(&applications, servers) {
                Err(least) => prop_assert!(least > servers),
                Ok(shares) => {
                    let earned: f64 = applications.iter().zip(&shares).map(|(a, &own)| a.earns(own)).sum();
                    prop_assert!((earned - brute_force(&applications, servers)).abs() < 1e-6);
                    prop_assert!(shares.iter().sum::<usize>() <= servers);
                    for (application, own) in applications.iter().zip(shares) {
                        prop_assert!((application.least..=application.most()).contains(&own));
                    }
                }
            }
        }
    }

    #[test]
    fn servers_that_earn_nothing_stay_free() {
        let application = |revenue: &[f64]| Application { revenue: revenue.to_vec(), least: 1, most: 9 };
        let shares =
            divide(&[application(&[0.0, 5.0, 8.0, 8.0]), application(&[0.0, 2.0, 2.0])], 11).unwrap();
        assert_eq!(shares, [2, 1]);
    }

    #[test]
    fn an_application_that_needs_two_at_once_gets_two() {
        let application = |revenue: &[f64]| Application { revenue: revenue.to_vec(), least: 0, most: 9 };
        let shares = divide(&[application(&[0.0, 3.0, 4.0]), application(&[0.0, 0.0, 9.0])], 2).unwrap();
        assert_eq!(shares, [0, 2]);
    }
}
