//! Tokens of machines.

use sluicegate_control::catalog::{NewToken, Page, TokenUse};
use sluicegate_control::{Error, Scope};

use crate::catalog::stage::{NOW, Stage, by};

const TOKEN: NewToken<'_> = NewToken {
    name: "ci",
    scopes: &[Scope::PolicyWrite, Scope::Check],
    expires_at: NOW + 1_000,
    hash: "h1",
};

pub(crate) async fn two_of_a_name_are_good_at_a_time(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    let first = catalog.create_token(&by(), "shop", TOKEN).await.unwrap();
    assert_eq!(first.scopes, [Scope::Check, Scope::PolicyWrite]);
    catalog.create_token(&by(), "shop", NewToken { hash: "h2", ..TOKEN }).await.unwrap();
    let third = NewToken { hash: "h3", ..TOKEN };
    let refused = catalog.create_token(&by(), "shop", third).await;
    assert!(matches!(refused, Err(Error::TooMany(_))), "{refused:?}");
    catalog.revoke_token(&by(), "shop", &first.id).await.unwrap();
    catalog.create_token(&by(), "shop", third).await.unwrap();
    assert_eq!(catalog.tokens("shop", &Page::default(), NOW).await.unwrap().len(), 3);
    for bad in [
        NewToken { name: "", ..TOKEN },
        NewToken { scopes: &[], ..TOKEN },
        NewToken { expires_at: NOW, ..TOKEN },
    ] {
        let wrong = catalog.create_token(&by(), "shop", bad).await;
        assert!(matches!(wrong, Err(Error::Invalid(_))), "{wrong:?}");
    }
}

pub(crate) async fn a_revoked_or_expired_token_is_good_for_nothing(stage: &Stage) {
    let catalog = &stage.catalog;
    stage.app("shop", &[]).await;
    stage.app("bank", &[]).await;
    let token = catalog.create_token(&by(), "shop", TOKEN).await.unwrap();
    let good = async |at| catalog.token_of_hash("h1", at).await.unwrap().is_some();
    assert!(good(NOW).await && good(NOW + 999).await);
    assert!(!good(NOW + 1_000).await);
    catalog
        .record_tokens_used(&[NOW + 5, NOW + 3].map(|at| TokenUse { id: token.id.clone(), at }))
        .await
        .unwrap();
    assert_eq!(
        catalog.tokens("shop", &Page::default(), NOW).await.unwrap()[0].used_at,
        Some(NOW + 5)
    );
    let other = catalog.revoke_token(&by(), "bank", &token.id).await;
    assert!(matches!(other, Err(Error::NotFound("token"))), "{other:?}");
    catalog.revoke_token(&by(), "shop", &token.id).await.unwrap();
    assert!(!good(NOW).await);
    let again = catalog.revoke_token(&by(), "shop", &token.id).await;
    assert!(matches!(again, Err(Error::NotFound("token"))), "{again:?}");
}
