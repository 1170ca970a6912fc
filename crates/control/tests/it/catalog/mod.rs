//! The catalog, the same on each of its databases.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod accounts;
mod apps;
mod audit;
mod changes;
mod limiter_info;
mod migrate;
mod policies;
mod published;
mod stage;
mod tokens;
mod traffic;

/// Each case as a test on each database.
macro_rules! on_every_database {
    ($($module:ident :: $case:ident,)+) => {
        on_every_database!(sqlite: $($module::$case,)+);
        on_every_database!(postgres: $($module::$case,)+);
        on_every_database!(mariadb: $($module::$case,)+);
    };
    ($database:ident: $($module:ident :: $case:ident,)+) => {
        mod $database {
            $(
                #[tokio::test]
                async fn $case() {
                    let stage = sluicegate_testkit::need!(crate::catalog::stage::$database().await);
                    crate::catalog::$module::$case(&stage).await;
                }
            )+
        }
    };
}

on_every_database! {
    accounts::the_first_account_is_made_once,
    accounts::an_account_is_found_whatever_the_case_of_its_name,
    accounts::who_changes_a_password_ends_all_sessions,
    accounts::who_signs_in_by_a_password_that_is_changed_meanwhile_does_not,
    accounts::the_last_administrator_stays,
    accounts::sessions_end_by_themselves,
    apps::a_new_catalog_begins_with_an_app_and_no_other_does,
    apps::a_catalog_with_an_account_is_not_new,
    apps::who_has_a_role_sees_the_app,
    apps::an_app_with_policies_stays,
    apps::names_differ_by_case_and_are_unique,
    apps::an_app_that_a_policy_names_stays_and_a_policy_is_deleted_whatever_it_names,
    apps::an_app_is_named_by_what_its_policies_say_now,
    audit::the_chain_holds_and_breaks_where_something_was_changed,
    audit::every_kind_of_forgery_is_found_and_looking_for_it_ends,
    audit::an_entry_behind_the_head_is_damage_and_is_shown_to_nobody,
    audit::who_was_denied_is_noted,
    audit::who_says_too_much_is_noted_all_the_same,
    audit::entries_are_read_page_by_page,
    audit::looking_changes_nothing_and_sees_what_is_there,
    changes::a_change_asked_for_again_is_made_once,
    changes::an_account_of_the_same_name_inherits_no_answers,
    changes::a_change_for_show_changes_nothing,
    changes::of_two_who_change_the_same_one_is_told,
    changes::changes_at_once_come_one_after_the_other,
    changes::text_is_kept_as_it_is_and_is_never_sql,
    policies::a_policy_lives_and_its_versions_stay,
    policies::what_makes_no_sense_changes_nothing,
    policies::who_would_be_locked_out_is_warned_of,
    policies::a_key_whose_own_limit_drops_is_warned_of,
    policies::a_name_with_a_nul_is_that_of_nothing,
    policies::the_latest_versions_stay_and_the_audit_knows_the_others_by_their_hash,
    policies::that_every_app_may_use_a_policy_is_warned_of_once,
    policies::a_document_is_applied_all_or_not_at_all,
    policies::what_was_changed_meanwhile_is_not_applied_over,
    policies::all_that_is_wrong_with_what_is_applied_is_told_with_its_place,
    policies::another_apps_policy_is_not_there,
    policies::an_app_has_so_many_policies_and_no_more,
    policies::all_apps_have_so_many_policies_and_no_more,
    published::nodes_are_told_what_changed,
    tokens::two_of_a_name_are_good_at_a_time,
    tokens::a_revoked_or_expired_token_is_good_for_nothing,
    traffic::rows_are_visited_once_each_the_latest_first,
    traffic::what_a_killed_node_wrote_of_five_minutes_is_added_up,
    traffic::old_rows_go_those_of_a_node_with_it_after_a_day,
    traffic::a_node_says_how_it_does_until_it_is_forgotten,
}

#[test]
fn a_url_that_is_none_is_refused_without_its_password() {
    for url in
        ["", "oracle://h", "mysql//x", "postgres://u:hunter2@h:port/d", "mysql://u:hunter2@h:x/d"]
    {
        let error = url.parse::<sluicegate_control::Url>().unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
    let url: sluicegate_control::Url = "postgres://u:hunter2@h/d".parse().unwrap();
    assert_eq!(format!("{url:?}"), "postgres:…");
}

#[tokio::test]
async fn two_nodes_may_begin_with_an_empty_database_at_once() {
    let folder = tempfile::tempdir().unwrap();
    // SQLite's files are in each other's way for a moment only: many of them meet it.
    let file = |n| format!("sqlite:{}", folder.path().join(format!("{n}.db")).display());
    let mut urls: Vec<_> = (0..20).map(file).collect();
    for kind in [sluicegate_testkit::SqlKind::Postgres, sluicegate_testkit::SqlKind::MariaDb] {
        let server = sluicegate_testkit::need!(sluicegate_testkit::SqlServer::shared(kind).await);
        urls.push(server.database().unwrap());
    }
    for url in urls {
        let url: sluicegate_control::Url = url.parse().unwrap();
        let open = || {
            let url = url.clone();
            tokio::spawn(async move { sluicegate_control::Catalog::open(&url).await })
        };
        for opened in [open(), open(), open(), open()] {
            opened.await.unwrap().unwrap_or_else(|error| panic!("{url:?}: {error}"));
        }
    }
}
