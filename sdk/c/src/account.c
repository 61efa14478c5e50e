/** Accounts: taken when a task first uses a resource, given back when it ends. */
#include "internal.h"
#include "stack.h"

/* One that was never used, or PLIMSOLL_NONE. */
static uint32_t account_fresh(plimsoll_app *app) {
    if (PLIMSOLL_LOAD(&app->accounts_fresh) >= app->counts.accounts) return PLIMSOLL_NONE;
    uint32_t index = PLIMSOLL_NONE;
    pthread_mutex_lock(&app->lock);
    if (app->accounts_fresh < app->counts.accounts) {
        index = app->accounts_fresh;
        PLIMSOLL_STORE(&app->accounts_fresh, index + 1);
        PLIMSOLL_STORE(&app->header->accounts_used, index + 1);
    }
    pthread_mutex_unlock(&app->lock);
    return index;
}

/* The account that the task has with the resource from now on, or NULL if there is none to be had. */
static plimsoll_account *account_take(plimsoll_task *task, plimsoll_place *place, const plimsoll_resource *constant) {
    plimsoll_app *app = task->app;
    /* The application's handle on it is constant, the stack of its free accounts is not. */
    plimsoll_resource *resource = &app->resources[constant->index];
    uint32_t index = plimsoll_stack_pop(&resource->free_accounts, app->sides, sizeof *app->sides);
    if (index == PLIMSOLL_NONE) index = account_fresh(app);
    if (index == PLIMSOLL_NONE) {
        __atomic_fetch_add(&app->header->accounts_refused, 1, __ATOMIC_RELAXED);
        plimsoll_say(&app->options, &app->said, PLIMSOLL_SAY_FULL_ACCOUNTS, "the ledger of %s has no room for more than %u accounts: some uses of resources are not accounted for", app->name,
                     PLIMSOLL_LOAD(&app->accounts_fresh));
        return NULL;
    }
    app->sides[index].resource = resource->index;
    PLIMSOLL_STORE(&app->sides[index].next, task->accounts_head);
    task->accounts_head = index + 1;
    plimsoll_account *account = &app->accounts[index];
    uint64_t record = (uint64_t)(task->record - app->task_records);
    PLIMSOLL_STORE(&account->owner, (record + 1) | (uint64_t)resource->index << 32 | (task->turn & 0xffff) << 48);
    *place = (plimsoll_place)account + 1;
    return account;
}

static plimsoll_account *account_noted(plimsoll_place place) {
    return (plimsoll_account *)((uintptr_t)place & ~(uintptr_t)1);
}

static plimsoll_account *account_of(plimsoll_task *task, const plimsoll_resource *resource) {
    plimsoll_place *place = plimsoll_place_of(task, resource);
    if (!place || !resource) return NULL;
    return *place ? account_noted(*place) : account_take(task, place, resource);
}

/* What an event is stamped with: never 0. */
static uint64_t account_now(const plimsoll_header *header) {
    uint64_t now = PLIMSOLL_LOAD(&header->flags) & PLIMSOLL_FLAG_EXACT ? plimsoll_now_ns() : PLIMSOLL_LOAD(&header->clock_ns);
    return now ? now : 1;
}

static void account_wait_end(const plimsoll_header *header, plimsoll_account *account) {
    uint64_t since = account->waiting_since_ns, now = account_now(header);
    account->waiting_since_ns = 0;
    PLIMSOLL_THEN(account);
    if (now > since) account->wait_ns += now - since;
    PLIMSOLL_THEN(account);
}

static void account_free(const plimsoll_header *header, plimsoll_account *account, uint64_t n) {
    uint64_t held = account->gets - account->frees;
    if (n > held) n = held;
    if (n == 0) return;
    if (n == held) {
        uint64_t since = account->holding_since_ns, now = account_now(header);
        account->holding_since_ns = 0;
        PLIMSOLL_THEN(account);
        if (now > since) account->hold_ns += now - since;
        PLIMSOLL_THEN(account);
    }
    account->frees += n;
    PLIMSOLL_THEN(account);
}

PLIMSOLL_API void plimsoll_wait_end_slowly(plimsoll_task *task, const plimsoll_resource *resource) {
    plimsoll_account *account = account_of(task, resource);
    if (!account) return;
    account_wait_end(task->header, account);
    *plimsoll_place_of(task, resource) = (plimsoll_place)account + 1;
}

PLIMSOLL_API void plimsoll_get_slowly(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n) {
    plimsoll_account *account = account_of(task, resource);
    if (!account) return;
    if (account->waiting_since_ns != 0) plimsoll_wait_end_slowly(task, resource);
    if (n == 0) return;
    account->gets += n;
    PLIMSOLL_THEN(account);
    if (account->holding_since_ns == 0) account->holding_since_ns = account_now(task->header);
    PLIMSOLL_THEN(account);
}

PLIMSOLL_API void plimsoll_free_slowly(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n) {
    plimsoll_place *place = plimsoll_place_of(task, resource);
    /* Who never got anything needs no account to give nothing back. */
    if (place && *place) account_free(task->header, account_noted(*place), n);
}

PLIMSOLL_API void plimsoll_wait_slowly(plimsoll_task *task, const plimsoll_resource *resource) {
    plimsoll_account *account = account_of(task, resource);
    if (!account || account->waiting_since_ns != 0) return;
    account->slows += 1;
    PLIMSOLL_THEN(account);
    account->waiting_since_ns = account_now(task->header);
    *plimsoll_place_of(task, resource) = (plimsoll_place)account;
    PLIMSOLL_THEN(account);
}

PLIMSOLL_API void plimsoll_slow_slowly(plimsoll_task *task, const plimsoll_resource *resource, uint64_t n, uint64_t delay_ns) {
    plimsoll_account *account = account_of(task, resource);
    if (!account) return;
    account->slows += n;
    PLIMSOLL_THEN(account);
    account->wait_ns += delay_ns;
    PLIMSOLL_THEN(account);
}

/* Ends what goes on in each account of the task and gives it back. */
void plimsoll_accounts_end(plimsoll_task *task) {
    plimsoll_app *app = task->app;
    uint32_t next = task->accounts_head;
    task->accounts_head = 0;
    while (next != 0) {
        uint32_t index = next - 1;
        plimsoll_account *account = &app->accounts[index];
        struct plimsoll_account_side *side = &app->sides[index];
        next = PLIMSOLL_LOAD(&side->next);
        if (account->waiting_since_ns != 0) account_wait_end(app->header, account);
        account_free(app->header, account, UINT64_MAX);
        PLIMSOLL_STORE(&account->owner, (uint64_t)side->resource << 32);
        *plimsoll_place_of(task, &app->resources[side->resource]) = NULL;
        plimsoll_stack_push(&app->resources[side->resource].free_accounts, &side->next, index);
    }
}
