#include "crops.h"

#include <math.h>

enum {
    ROUNDS = 10,       /* Of Philox. */
    TRIES = 10,        /* Boxes that are drawn before the largest one in the middle is taken. */
    LEAST_REDUCED = 16 /* Pixels; a smaller image is never decoded at a part of its size. */
};

/* Philox4x64-10 (Salmon et al., SC 2011), as NumPy has it. */
typedef struct {
    Seed seed;
    uint64_t held[4];
    int used; /* Of those that are held. */
} Stream;

/* Of a box, or of the whole image that is resized first: begin and length on either axis. */
typedef struct {
    int64_t top, left, height, width;
} Box;

static uint64_t high_of(uint64_t a, uint64_t b) {
    return (uint64_t)((unsigned __int128)a * b >> 64);
}

static void fill(Stream *stream) {
    uint64_t *counter = stream->seed.counter;
    for (int i = 0; i < 4 && ++counter[i] == 0; i++) continue;
    uint64_t key[2] = {stream->seed.key[0], stream->seed.key[1]};
    uint64_t now[4] = {counter[0], counter[1], counter[2], counter[3]};
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t first = 0xD2E7470EE14C6C93, second = 0xCA5A826395121157;
        uint64_t high[2] = {high_of(first, now[0]), high_of(second, now[2])};
        uint64_t low[2] = {first * now[0], second * now[2]};
        now[0] = high[1] ^ now[1] ^ key[0];
        now[1] = low[1];
        now[2] = high[0] ^ now[3] ^ key[1];
        now[3] = low[0];
        key[0] += 0x9E3779B97F4A7C15;
        key[1] += 0xBB67AE8584CAA73B;
    }
    for (int i = 0; i < 4; i++) stream->held[i] = now[i];
    stream->used = 0;
}

/* Uniform in [0, 1). */
static double drawn(Stream *stream) {
    if (stream->used == 4) fill(stream);
    return (double)(stream->held[stream->used++] >> 11) * (1.0 / 9007199254740992.0);
}

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* A side of a box: to the nearest, halves to even, within the image's. */
static int64_t side_of(double value, int64_t size) {
    return value >= (double)size ? size : most(1, (int64_t)rint(value));
}

/* Whether a box fits depends on the image's aspect alone, not on its size. Returns 0 where Python's
 * arithmetic would raise an exception. */
static int random_resized(const Asked *asked, Stream *stream, int64_t height, int64_t width,
                          Box *box) {
    const double *area = asked->area, *ratio = asked->ratio, *logs = asked->log_ratio;
    const double down = (double)height / (double)width, across = (double)width / (double)height;
    for (int i = 0; i < TRIES; i++) {
        double fraction = area[0] + (area[1] - area[0]) * drawn(stream);
        double aspect = exp(logs[0] + (logs[1] - logs[0]) * drawn(stream));
        if (!isfinite(aspect) || aspect == 0) return 0;
        if (fraction * aspect * down <= 1 && fraction / aspect * across <= 1) {
            double pixels = (double)(height * width) * fraction;
            box->width = side_of(sqrt(pixels * aspect), width);
            box->height = side_of(sqrt(pixels / aspect), height);
            box->top = (int64_t)(drawn(stream) * (double)(height - box->height + 1));
            box->left = (int64_t)(drawn(stream) * (double)(width - box->width + 1));
            return 1;
        }
    }
    double aspect = across < ratio[0] ? ratio[0] : across > ratio[1] ? ratio[1] : across;
    double high = (double)width / aspect, wide = (double)height * aspect;
    if (!isfinite(high) || !isfinite(wide)) return 0;
    box->height = side_of(high, height), box->width = side_of(wide, width);
    box->top = (height - box->height) / 2, box->left = (width - box->width) / 2;
    return 1;
}

/* `box` is the whole image before, resized or not. */
static void cut_out(const Asked *asked, Stream *stream, int64_t goal_height, int64_t goal_width,
                    Box *box) {
    int64_t height = box->height, width = box->width;
    if (asked->resize_short && goal_height <= height && goal_width <= width) {
        box->height = goal_height, box->width = goal_width;
    } else {
        box->height = least(height, most(1, goal_height * width / goal_width));
        box->width = least(width, most(1, goal_width * height / goal_height));
    }
    int64_t down = height - box->height, right = width - box->width;
    if (asked->cut == RANDOM) {
        box->top = (int64_t)(drawn(stream) * (double)(down + 1));
        box->left = (int64_t)(drawn(stream) * (double)(right + 1));
    } else {
        box->top = down / 2, box->left = right / 2;
    }
}

static int32_t factor_of(int64_t height, int64_t width, const Box *from, int64_t to_height,
                         int64_t to_width) {
    int32_t factor = 1;
    if (least(height, width) < LEAST_REDUCED) return factor;
    while (factor < 8 && from->height >= to_height * factor * 2 &&
           from->width >= to_width * factor * 2)
        factor *= 2;
    return factor;
}

/* An axis of the image at 1 / factor, whose size there is `size`. */
static Axis reduced(int64_t begin, int64_t length, int32_t factor, int64_t size) {
    if (factor == 1) return (Axis){(int32_t)begin, (int32_t)length, 0, 0};
    int64_t first = (2 * begin + factor) / (2 * factor);
    int64_t last = (2 * (begin + length) + factor) / (2 * factor);
    first = least(first, size - 1);
    return (Axis){(int32_t)first, (int32_t)most(last - first, 1), 0, 0};
}

int crop_of(const Asked *asked, const Seed *seed, int32_t height, int32_t width, int is_reducible,
            const Batch *batch, Crop *crop) {
    Stream stream = {.used = 4};
    int draws = asked->flip || asked->cut == RANDOM || asked->cut == RANDOM_RESIZED;
    if ((draws && seed == NULL) || asked->resize_short < 0) return 0;
    if (draws) stream.seed = *seed;
    *crop = (Crop){.height = height, .width = width};
    crop->flip = asked->flip && drawn(&stream) < 0.5;
    Box image = {0, 0, height, width}, box = image;
    int is_resized = asked->resize_short != 0 && asked->cut != RANDOM_RESIZED;
    if (is_resized) {
        int64_t side = asked->resize_short, wide = (int64_t)width * side / height;
        box.height = height < width ? side : (int64_t)height * side / width;
        box.width = height < width ? wide : side;
        if (box.height > MOST_PIXELS || box.width > MOST_PIXELS / box.height) return 0;
    }
    Box whole = box;
    if (asked->cut == RANDOM_RESIZED) {
        if (!random_resized(asked, &stream, height, width, &box)) return 0;
    } else if (asked->cut != WHOLE) {
        cut_out(asked, &stream, batch->height, batch->width, &box);
    }
    if (is_resized) {
        if (box.height != batch->height || box.width != batch->width) return 0;
        crop->factor = factor_of(height, width, &image, whole.height, whole.width);
    } else {
        crop->factor = factor_of(height, width, &box, batch->height, batch->width);
    }
    if (!is_reducible) crop->factor = 1;
    int64_t down = (height + crop->factor - 1) / crop->factor;
    int64_t across = (width + crop->factor - 1) / crop->factor;
    const Box *from = is_resized ? &image : &box;
    crop->vertical = reduced(from->top, from->height, crop->factor, down);
    crop->horizontal = reduced(from->left, from->width, crop->factor, across);
    crop->vertical.resized = (int32_t)(is_resized ? whole.height : batch->height);
    crop->horizontal.resized = (int32_t)(is_resized ? whole.width : batch->width);
    crop->vertical.offset = is_resized ? (int32_t)box.top : 0;
    crop->horizontal.offset = is_resized ? (int32_t)box.left : 0;
    return 1;
}
