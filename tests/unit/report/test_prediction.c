/* test_prediction.c: a prediction is held against the run that made its change, and no other. */
#include "report_testing.h"

#include "report/compare.h"

static json_t *loader(int workers, int persistent, int prefetch, int batch)
{
    return json_pack("{si sb so sb so}", "num_workers", workers, "persistent_workers", persistent,
                     "prefetch_factor", prefetch ? json_integer(prefetch) : json_null(),
                     "pin_memory", 0, "batch_size", batch ? json_integer(batch) : json_null());
}

static json_t *summary(const char *setting, double gain, double rate, double mean)
{
    json_t *predicted =
        setting ? json_pack("{ss sf sf}", "setting", setting, "step_ms", 10.0, "gain", gain)
                : json_null();
    int of_code = setting && strstr(setting, "at no cost") != NULL;
    return json_pack("{s[{so sb}] s{so sf}}", "findings", "predicted", predicted,
                     "predicted_at_most", of_code, "step_time", "samples_per_s",
                     json_number_or_null(rate), "mean", mean);
}

/* "yes", "no", "unseen" or "none". */
static const char *judged(const char *setting, json_t *was, json_t *is)
{
    json_t *before = summary(setting, 0.5, 100, 20), *after = summary(NULL, 0, 140, 14);
    json_t *result = compare_prediction(before, was, after, is);
    const char *answer = "none";
    if (json_is_object(result)) {
        const json_t *followed = json_object_get(result, "followed");
        answer = json_is_true(followed) ? "yes" : json_is_false(followed) ? "no" : "unseen";
        assert_true(fabs(json_find_number(result, "measured_gain", 0) - 0.4) < 1e-9);
        assert_true(fabs(json_find_number(result, "predicted_gain", 0) - 0.5) < 1e-9);
        assert_true(json_find_text(result, "text", NULL) != NULL);
    }
    json_decref(result);
    json_decref(before);
    json_decref(after);
    json_decref(was);
    json_decref(is);
    return answer;
}

static void followed_or_not(void **state)
{
    static const char four[] = "num_workers=4,persistent_workers=True";
    assert_string_equal(judged(four, loader(0, 0, 0, 32), loader(4, 1, 2, 32)), "yes");
    assert_string_equal(judged(four, loader(0, 0, 0, 32), loader(3, 1, 2, 32)), "no");
    assert_string_equal(judged(four, loader(0, 0, 0, 32), loader(4, 0, 2, 32)), "no");
    assert_string_equal(judged(four, loader(0, 0, 0, 32), loader(0, 0, 0, 32)), "no");
    /* Something else was changed besides. */
    assert_string_equal(judged(four, loader(2, 0, 2, 32), loader(4, 1, 8, 32)), "no");
    assert_string_equal(judged(four, loader(0, 0, 0, 32), loader(4, 1, 2, 64)), "no");
    assert_string_equal(judged("persistent_workers=True", loader(2, 0, 2, 32), loader(2, 1, 2, 32)),
                        "yes");
    assert_string_equal(
        judged("batch_size=None,num_workers=0", loader(2, 0, 2, 256), loader(0, 0, 0, 0)), "yes");
}

/* A change of code is not detected; changes of other settings are. */
static void a_change_of_the_code(void **state)
{
    static const char line[] = "train.py:33 at no cost";
    assert_string_equal(judged(line, loader(2, 0, 2, 32), loader(2, 0, 2, 32)), "unseen");
    assert_string_equal(judged(line, loader(2, 0, 2, 32), loader(4, 0, 2, 32)), "no");
    /* A path may look like a setting. */
    static const char path[] = "runs/num_workers=4/train.py:33 at no cost";
    assert_string_equal(judged(path, loader(2, 0, 2, 32), loader(2, 0, 2, 32)), "unseen");
}

static void nothing_to_judge(void **state)
{
    assert_string_equal(judged(NULL, loader(2, 0, 2, 32), loader(2, 0, 2, 32)), "none");
    json_t *before = summary("num_workers=2", 0.5, 100, 20), *after = summary(NULL, 0, NAN, 16);
    json_t *is = loader(2, 0, 2, 32), *was = loader(0, 0, 0, 32);
    json_t *none = compare_prediction(before, NULL, after, is);
    assert_true(json_is_null(none));
    /* Without a count of samples the step time decides. */
    json_t *result = compare_prediction(before, was, after, is);
    assert_true(fabs(json_find_number(result, "measured_gain", 0) - 0.25) < 1e-9);
    json_decref(result);
    json_decref(before);
    json_decref(after);
    json_decref(is);
    json_decref(was);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(followed_or_not),
        cmocka_unit_test(a_change_of_the_code),
        cmocka_unit_test(nothing_to_judge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
