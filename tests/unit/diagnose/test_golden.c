/* test_golden.c: every script of tests/data/golden gives exactly the findings that it names, and
 * every rule of the table has one that fires it and one that must not. */
#include "unit/diagnose/golden_testing.h"

#include "base/str.h"
#include "diagnose/rule.h"

#include <dirent.h>
#include <math.h>

static char db_path[64];

/* Whether the first line of `text` contains `key`; NULL contains nothing. */
static int names(const char *text, const char *key)
{
    const char *at = text ? strstr(text, key) : NULL;
    return at && at < text + strcspn(text, "\n");
}

/* The findings as the scripts write them. */
static void list_findings(const struct findings *found, const char *expected, struct str *out)
{
    for (size_t i = 0; i < found->count; i++) {
        const struct finding *f = &found->items[i];
        const char *line = expected;
        str_addf(out, "%s %s", finding_kind_label(f->kind), severity_text(f->severity));
        if (f->cause != CAUSE_NONE)
            str_addf(out, " %s", cause_text(f->cause));
        /* Rank and node are compared where the script names them. */
        for (size_t j = 0; j < i && line; j++)
            line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
        if (names(line, "rank="))
            str_addf(out, " rank=%d", f->rank);
        if (names(line, "node="))
            str_addf(out, " node=%s", f->node ? f->node : "");
        str_add(out, "\n");
    }
}

/* The values of all comments `-- KEY: value`, one per line. */
static void collect(const char *text, const char *key, struct str *out)
{
    char start[32];
    snprintf(start, sizeof start, "-- %s: ", key);
    for (const char *line = text; line && *line;) {
        size_t length = strcspn(line, "\n");
        size_t skip = strlen(start);
        if (strncmp(line, start, skip) == 0) {
            str_add_bytes(out, line + skip, length - skip);
            str_add(out, "\n");
        }
        line += length + (line[length] == '\n');
    }
}

/* Each finding has evidence, whose rows can be selected from run.db. */
static void check_evidence(const struct findings *found, const char *name)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open_v2(db_path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    for (size_t i = 0; i < found->count; i++) {
        const struct finding *f = &found->items[i];
        if (f->evidence_count == 0)
            fail_msg("%s: %s has no evidence", name, finding_kind_label(f->kind));
        for (size_t j = 0; j < f->evidence_count; j++) {
            char sql[1024], *message = NULL;
            snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", f->evidence[j].rows);
            if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
                fail_msg("%s: %s: %s: %s", name, finding_kind_label(f->kind), f->evidence[j].rows,
                         message);
        }
        assert_true(f->to_ms > f->from_ms);
        assert_true(f->confidence > 0 && f->confidence <= 1);
    }
    sqlite3_close(db);
}

/* Whether a rule adds a finding to those of the rules before it in the table. */
static int rule_fires(const struct facts *facts, const struct rule *wanted)
{
    struct findings found = {0};
    int fires = 0;
    for (const struct rule *r = rules; r <= wanted; r++) {
        size_t before = found.count;
        r->apply(facts, &found);
        fires = found.count > before;
    }
    assert_int_equal(found.failed, 0);
    findings_done(&found);
    return fires;
}

/* Compares the value of `-- KEY: value` with the finding's; a script without the key allows any. */
static void check_value(const char *text, const char *key, const char *got, const char *name)
{
    struct str wanted = {0};
    collect(text, key, &wanted);
    if (wanted.length) {
        wanted.text[strcspn(wanted.text, "\n")] = 0;
        if (strcmp(wanted.text, got) != 0)
            fail_msg("%s: %s is \"%s\", not \"%s\"", name, key, got, wanted.text);
    }
    str_done(&wanted);
}

static void check_place(const char *text, const struct finding *f, const char *name)
{
    struct str at = {0};
    if (f->where_count > 0)
        str_addf(&at, "%s:%d", f->where[0].file, f->where[0].line);
    check_value(text, "at", str_text(&at), name);
    check_value(text, "predicts", f->setting ? f->setting : "", name);
    str_done(&at);
}

static void check_gain(const char *text, const struct finding *f, const char *name)
{
    struct str gain = {0};
    if (!(f->predicted_gain > 0))
        str_add(&gain, "none");
    else
        str_addf(&gain, "%s%.0f %%", f->at_most ? "up to " : "", 100 * f->predicted_gain);
    check_value(text, "gains", str_text(&gain), name);
    str_done(&gain);
}

/* The action as the scripts write it: "set_loader num_workers=4". */
static void action_words(const struct finding *f, struct str *out)
{
    str_add(out, action_text(f->action_code));
    if (f->action_arguments)
        str_addf(out, " %s", f->action_arguments);
}

static void check_action(const char *text, const struct finding *f, const char *name)
{
    struct str got = {0};
    action_words(f, &got);
    check_value(text, "action", str_text(&got), name);
    str_done(&got);
}

/* Every line `-- KEY: value` of the script holds for at least one finding. */
static void check_any(const char *text, const char *key, const struct findings *found,
                      int (*holds)(const struct finding *f, const char *value), const char *name)
{
    struct str wanted = {0};
    collect(text, key, &wanted);
    for (char *line = wanted.text ? strtok(wanted.text, "\n") : NULL; line;
         line = strtok(NULL, "\n")) {
        size_t i = 0;
        while (i < found->count && !holds(&found->items[i], line))
            i++;
        if (i == found->count)
            fail_msg("%s: %s: \"%s\" does not hold", name, key, line);
    }
    str_done(&wanted);
}

static int has_action(const struct finding *f, const char *value)
{
    struct str got = {0};
    action_words(f, &got);
    int same = strcmp(str_text(&got), value) == 0;
    str_done(&got);
    return same;
}

/* `value` is a code and its value, compared to as many decimals as are written. */
static int has_evidence(const struct finding *f, const char *value)
{
    char code[64] = "", wanted[64] = "", got[64];
    sscanf(value, "%63s %63s", code, wanted);
    const char *point = strchr(wanted, '.');
    int decimals = point ? (int)strlen(point + 1) : 0;
    for (size_t i = 0; i < f->evidence_count; i++) {
        const struct evidence *e = &f->evidence[i];
        snprintf(got, sizeof got, "%.*f", decimals, e->value);
        if (strcmp(evidence_code_text(e->code), code) == 0 &&
            (!*wanted || strcmp(got, wanted) == 0))
            return 1;
    }
    return 0;
}

static int has_label(const struct finding *f, const char *value)
{
    return strcmp(finding_kind_label(f->kind), value) == 0;
}

static int has_text(const struct finding *f, const char *value)
{
    return strstr(f->summary, value) || strstr(f->action, value);
}

/* `-- never: LABEL` */
static void check_never(const char *text, const struct findings *found, const char *name)
{
    struct str never = {0};
    collect(text, "never", &never);
    for (char *line = never.text ? strtok(never.text, "\n") : NULL; line; line = strtok(NULL, "\n"))
        for (size_t i = 0; i < found->count; i++)
            if (has_label(&found->items[i], line))
                fail_msg("%s: %s must not be found", name, line);
    str_done(&never);
}

static void check_alternative(const char *text, const struct finding *f, const char *name)
{
    struct str wanted = {0};
    collect(text, "or", &wanted);
    if (wanted.length)
        wanted.text[strcspn(wanted.text, "\n")] = 0;
    if (strcmp(action_text(f->alternative_code), str_text(&wanted)) != 0)
        fail_msg("%s: the alternative is \"%s\", not \"%s\"", name,
                 action_text(f->alternative_code), str_text(&wanted));
    str_done(&wanted);
}

/* A text that a user reads ends with a full stop and has no unformatted or unknown value. */
static void check_sentence(const char *text, const char *name)
{
    static const char *const bad[] = {"nan", "inf ", "inf%", "(null)", "%!", "  ", " . ", " , "};
    size_t length = strlen(text);
    if (length == 0 || text[length - 1] != '.')
        fail_msg("%s: \"%s\" does not end with a full stop", name, text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (strstr(text, bad[i]))
            fail_msg("%s: \"%s\" holds \"%s\"", name, text, bad[i]);
}

static void check_messages(const struct findings *found, const char *name)
{
    for (size_t i = 0; i < found->count; i++) {
        const struct finding *f = &found->items[i];
        check_sentence(f->summary, name);
        check_sentence(f->action, name);
        if (f->alternative)
            check_sentence(f->alternative, name);
        for (size_t j = 0; j < f->evidence_count; j++) {
            assert_true(f->evidence[j].what[0] && f->evidence[j].unit[0]);
            if (!isfinite(f->evidence[j].value))
                fail_msg("%s: %s is %g", name, f->evidence[j].what, f->evidence[j].value);
        }
    }
}

static const struct rule *rule_of(const char *name, int *ret_fires)
{
    const struct rule *best = NULL;
    for (size_t i = 0; i < rule_count; i++) {
        size_t length = strlen(rules[i].name);
        if (strncmp(name, rules[i].name, length) == 0 && name[length] == '-')
            best = &rules[i];
    }
    if (best)
        *ret_fires = strncmp(name + strlen(best->name), "-fires", 6) == 0;
    return best;
}

static void test_script(void **state)
{
    const char *name = *state;
    static char text[GOLDEN_TEXT_BYTES];
    char path[1024];
    struct str expected = {0}, got = {0};
    struct findings found = {0};
    struct leat_err err = {""};
    int fires = 0;
    const struct rule *rule = rule_of(name, &fires);
    if (!rule)
        fail_msg("%s: no rule of this name", name);
    snprintf(path, sizeof path, "%s/%s", golden_folder(), name);
    golden_make(name, db_path);
    golden_read(path, text);
    collect(text, "expect", &expected);
    struct facts *facts = golden_load(db_path);
    if (diagnose(facts, &found, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    list_findings(&found, str_text(&expected), &got);
    if (strcmp(str_text(&expected), str_text(&got)) != 0) {
        for (size_t i = 0; i < found.count; i++)
            print_message("%s: %s | %s\n", finding_kind_label(found.items[i].kind),
                          found.items[i].summary, found.items[i].action);
        fail_msg("%s\nexpected:\n%sgot:\n%s", name, str_text(&expected), str_text(&got));
    }
    check_never(text, &found, name);
    check_action(text, &found.items[0], name);
    check_any(text, "also", &found, has_action, name);
    check_any(text, "evidence", &found, has_evidence, name);
    check_any(text, "text", &found, has_text, name);
    check_messages(&found, name);
    check_place(text, &found.items[0], name);
    check_gain(text, &found.items[0], name);
    check_alternative(text, &found.items[0], name);
    check_evidence(&found, name);
    if (rule_fires(facts, rule) != fires)
        fail_msg("%s: the rule %s", name, fires ? "does not fire" : "fires");
    findings_done(&found);
    facts_free(facts);
    str_done(&expected);
    str_done(&got);
}

static int is_script(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 4 && strcmp(entry->d_name + length - 4, ".sql") == 0;
}

static void test_every_rule_has_both(void **state)
{
    const char *const kinds[] = {"fires", "silent"};
    for (size_t i = 0; i < rule_count; i++)
        for (int j = 0; j < 2; j++) {
            char path[1024];
            snprintf(path, sizeof path, "%s/%s-%s.sql", golden_folder(), rules[i].name, kinds[j]);
            if (access(path, R_OK) != 0)
                fail_msg("%s is missing", path);
        }
}

int main(void)
{
    struct dirent **names = NULL;
    snprintf(db_path, sizeof db_path, "/tmp/leat-golden-%d.db", (int)getpid());
    int n = scandir(golden_folder(), &names, is_script, alphasort);
    struct CMUnitTest *tests = n > 0 ? calloc((size_t)n + 1, sizeof *tests) : NULL;
    if (!tests)
        return 1;
    tests[0] = (struct CMUnitTest)cmocka_unit_test(test_every_rule_has_both);
    for (int i = 0; i < n; i++)
        tests[i + 1] = (struct CMUnitTest){
            .name = names[i]->d_name, .test_func = test_script, .initial_state = names[i]->d_name};
    int failed = _cmocka_run_group_tests("golden", tests, (size_t)n + 1, NULL, NULL);
    unlink(db_path);
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
    free(tests);
    return failed;
}
