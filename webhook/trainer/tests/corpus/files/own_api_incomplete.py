import mindio_ttp.framework_ttp as ttp
from mindio_ttp.framework_ttp import tft_register_save_ckpt_handler


@ttp.tft_exception_handler
def train(args):
    for step in range(1, args.steps):
        ttp.tft_start_updating_os()
        optimizer.step()
        ttp.tft_end_updating_os(step)


def main(args):
    ttp.tft_init_processor(args.rank, args.world_size, False)
    ttp.tft_start_processor(args.controller, 8000)
    ttp.tft_set_optimizer_replica(args.rank, replicas(args))
    # ttp.tft_set_dp_group_info(args.rank, groups(args))
    tft_register_save_ckpt_handler(save)
    train(args)
