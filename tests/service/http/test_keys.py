import pytest
from pydantic import SecretStr

from portcullis.errors import Forbidden, Unauthorized
from portcullis.http.keys import Access, Keys


def keys(*pairs):
    return Keys(SecretStr(pair) for pair in pairs)


def test_several_keys_are_good_at_once_and_each_has_its_name():
    both = keys("old:first-secret", "new:second-secret")
    assert both.name_of("first-secret") == "old"
    assert both.name_of("second-secret") == "new"
    assert both.name_of("first-secret ") is None
    assert both.name_of("old:first-secret") is None


def test_a_secret_may_hold_a_colon():
    assert keys("me:a:b:c:d:e").name_of("a:b:c:d:e") == "me"


def test_without_predict_keys_everybody_may_predict():
    Access(keys(), keys()).check_predict(None)


def test_a_missing_key_is_401_and_a_wrong_one_403():
    access = Access(keys("p:predict-secret"), keys("a:admin-secret"))
    with pytest.raises(Unauthorized):
        access.check_predict(None)
    with pytest.raises(Forbidden):
        access.check_predict("wrong")
    access.check_predict("predict-secret")
    access.check_predict("admin-secret")
    with pytest.raises(Unauthorized):
        access.check_admin(None)
    with pytest.raises(Forbidden):
        access.check_admin("predict-secret")
    assert access.check_admin("admin-secret") == "a"


def test_without_an_admin_key_the_admin_routes_are_off():
    with pytest.raises(Forbidden, match="admin routes are off"):
        Access(keys("p:predict-secret"), keys()).check_admin("predict-secret")
