//! OpenMetrics in the older text format, for scrapers that do not ask for the newer one.
//!
//! The formats differ in the description of a family: the older one names it as its samples, and has
//! no units, no information and no end.

/// `open_metrics` in the text format of Prometheus, version 0.0.4.
pub(crate) fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (ending, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            let help = help.take().unwrap_or_default();
            text += &format!("# HELP {name}{ending} {help}\n# TYPE {name}{ending} {kind}\n");
        } else if !line.starts_with('#') {
            text += line;
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_called_as_their_samples_are() {
        let open_metrics = "# HELP a_seconds How long\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
             a_seconds_total{x=\"# y\"} 1\n# HELP b Who\n# TYPE b info\nb_info{v=\"1\"} 1\n# EOF\n";
        let text = "# HELP a_seconds_total How long\n# TYPE a_seconds_total counter\n\
             a_seconds_total{x=\"# y\"} 1\n# HELP b_info Who\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n";
        assert_eq!(classic(open_metrics), text);
    }
}
